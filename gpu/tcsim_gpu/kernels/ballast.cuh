// Units whose blocks keep fewer bits than the tensor core here, on that tensor core: fp16 and bf16 of A100, fp16 of V100 on Hopper.
//
// Two more products, +2^s and -2^s with s = e + F' - F, cancel, but align a block of the core's, which keeps F' bits, where the unit
// aligns its own, of largest exponent e and F bits. `ballast.py` has the proof. e is that of an output and a block: an instruction
// serves those of its 16 x 8 outputs that share one, and is repeated for the next e. Where sums of one sign have grown beyond every
// product, e is the output's own; a warp whose outputs lie between 2^e and 2^(e+4), and cannot leave in a stage of 64 products,
// computes it with one to four instructions a block, and looks at nothing else. Other stages are looked at block by block. Warps wait
// for a stage to come, not for each other, as long as nobody is more than all but one of the stages in memory behind.
//
// The host defines YS, a warp's columns in eights, STAGES, of which one is fetched while warps work on others, W, the products of a block in memory (4 or 8), SHIFT = F' - F, LOW and HIGH, the
// least and the largest e that have ballast, of the operands' format MB, BIAS, INF_CODE and TYPE, its name in PTX, and, but for CUDA,
// what CUDA's words mean.

struct Ballast {
  const u16 *a, *b;                  // (m, pitch), (n, pitch): codes
  const short *a_tops, *b_tops;      // (groups, pitch)
  const Stage *a_stages, *b_stages;  // (stages, groups)
  const u32 *c;
  u32 *d;
  u64 *count;  // outputs left over; whether to stop
  i64 *list;   // the first `room` of them
  i64 m, n, pitch, blocks, a_groups, b_groups, room, offset;
  i64 limit;  // instructions a tile and block that may be repeated before the emulator is the faster one
  i64 sign;   // of all products: 1 negative, 0 positive, 2 both occur
};

#define TILE_M 128
#define TILE_N (16 * YS)      // a warp's columns are YS times eight
#define GROUPS_A (TILE_M / 32)  // of rows in a tile
#define GROUPS_B (TILE_N / 32)  // of columns
#define PLANE(ROWS) (CHUNKS * ((ROWS) + 1) * 16)  // one more row in a chunk, so that copies of eight chunks meet in no bank
#define KNOWN (PLANE(TILE_M) + PLANE(TILE_N))     // codes of a, of b, and then what is known of their groups
#define STAGE_BYTES (KNOWN + (GROUPS_A + GROUPS_B) * 8)
#define WARPS 8
#define MOST 4                // exponents of a warp's outputs that are taken side by side

template <int BYTES> DEV void copy(void *to, const void *from) {
#ifdef __CUDACC__
  const u32 at = (u32)__cvta_generic_to_shared(to);
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from));
#else
  memcpy(to, from, BYTES);
#endif
}

// Where the threads of a block of threads meet without stopping: `turn` is how many times all COUNT have arrived before.
DEV void prepare(u64 *barrier, u32 count) {
#ifdef __CUDACC__
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(barrier)), "r"(count));
#else
  *barrier = 0;
#endif
}

DEV void arrive(u64 *barrier) {
#ifdef __CUDACC__
  asm volatile("{\n.reg .b64 ignored;\nmbarrier.arrive.shared.b64 ignored, [%0];\n}" ::"r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
#else
  *barrier += 1;
#endif
}

// The same, once what the thread copies has come.
DEV void arrive_copied(u64 *barrier) {
#ifdef __CUDACC__
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
#else
  *barrier += 1;
#endif
}

template <int COUNT> DEV void wait_for(u64 *barrier, int turn) {
#ifdef __CUDACC__
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
          (u32)__cvta_generic_to_shared(barrier)),
      "r"(turn & 1)
      : "memory");
#else
  while (*barrier < (u64)COUNT * (turn + 1)) give_way();
#endif
}

// A stage of ROWS rows from row0 on. What lies outside the operand is its last row, so that outputs outside the result are like others
// and nobody need tell them apart, and its last 16 bytes, which no block reads.
template <int ROWS> DEV void copy_side(u8 *to, const u16 *from, int row0, int rows, u32 pitch, int chunk0) {
  const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
  const u16 *column = from + min(chunk0 + chunk, (int)(pitch / 8) - 1) * 8;
#pragma unroll
  for (int r = 0; r < ROWS; r += 256 / CHUNKS)
    copy<16>(to + (chunk * (ROWS + 1) + first + r) * 16, column + (u64)(u32)min(row0 + first + r, rows - 1) * pitch);
}

DEV void load_stage(u8 *s, const Ballast &p, int row0, int column0, int stage) {
  copy_side<TILE_M>(s, p.a, row0, (int)p.m, (u32)p.pitch, stage * CHUNKS);
  copy_side<TILE_N>(s + PLANE(TILE_M), p.b, column0, (int)p.n, (u32)p.pitch, stage * CHUNKS);
  if (threadIdx.x < GROUPS_A + GROUPS_B) {
    const bool of_a = threadIdx.x < GROUPS_A;
    const i64 groups = of_a ? p.a_groups : p.b_groups, group = of_a ? row0 / 32 + threadIdx.x : column0 / 32 + threadIdx.x - GROUPS_A;
    copy<8>(s + KNOWN + threadIdx.x * 8, (of_a ? p.a_stages : p.b_stages) + stage * groups + min(group, groups - 1));
  }
}

// Bytes from a plane's block 0 to another one of the same row.
template <int ROWS> DEV int offset_of(int block) { return block / PER_CHUNK * (ROWS + 1) * 16 + block % PER_CHUNK * W * 2; }

// A place in shared memory, as its instructions name it.
#ifdef __CUDACC__
typedef u32 Place;
DEV Place place_of(const u8 *p) { return (u32)__cvta_generic_to_shared(p); }
DEV u32 word_at(Place p) {
  u32 x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(p));
  return x;
}
#else
typedef const u8 *Place;
DEV Place place_of(const u8 *p) { return p; }
DEV u32 word_at(Place p) { return *(const u32 *)p; }
#endif

// A block's operands for a warp's two by YS tiles of the instruction, as a lane holds them: row g of eight, places t of a block.
// Lanes that hold ballast instead read what others do.
struct Words {
  u32 a[2][2], b[YS];
};

DEV int lane_offset(int lane) { return lane / 4 * 16 + lane % 4 % (W / 2) * 4; }

DEV void load_block(Words &to, Place rows, Place columns) {
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int half = 0; half < 2; half++) to.a[x][half] = word_at(rows + (x * 16 + half * 8) * 16);
#pragma unroll
  for (int y = 0; y < YS; y++) to.b[y] = word_at(columns + y * 8 * 16);
}

// A block of two tiles of 16 x 8 outputs that have one of COUNT exponents, the least of which begins at `from`.
template <int COUNT> DEV void alike_tiles(float (&upper)[4], float (&lower)[4], const u32 (&a)[2][2], u32 b, const Pair &with, u32 step, float from) {
  if (COUNT == 1) {
    mma(upper, a[0][0], a[0][1], b, with, upper);
    mma(lower, a[1][0], a[1][1], b, with, lower);
    return;
  }
  float out[2][4];
  mma(out[0], a[0][0], a[0][1], b, with, upper);
  mma(out[1], a[1][0], a[1][1], b, with, lower);
#pragma unroll
  for (int next = 1; next < COUNT; next++) {
    float d[2][4];
    const Pair more = {with.a, with.b + next * step, with.mine};
    mma(d[0], a[0][0], a[0][1], b, more, upper);
    mma(d[1], a[1][0], a[1][1], b, more, lower);
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float c = x ? lower[i] : upper[i];
        out[x][i] = fabsf(c) >= from * (1 << next) ? d[x][i] : out[x][i];
      }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) upper[i] = out[0][i], lower[i] = out[1][i];
}

// Blocks whose outputs, before each, have one of COUNT exponents; the next one's operands are fetched while one is computed.
template <int COUNT> DEV void alike(float (&acc)[2][YS][4], Place rows, Place columns, int block, int run, Pair with, float from, int lane) {
  const u32 step = COUNT > 1 && holds_ballast(lane) ? STEP : 0;
  Words words;
  load_block(words, rows + offset_of<TILE_M>(block), columns + offset_of<TILE_N>(block));
#pragma unroll 1
  for (const int end = block + run; block < end; block++) {
    const int at = min(block + 1, end - 1);
    Words next;
    load_block(next, rows + offset_of<TILE_M>(at), columns + offset_of<TILE_N>(at));
#pragma unroll
    for (int y = 0; y < YS; y++) alike_tiles<COUNT>(acc[0][y], acc[1][y], words.a, words.b[y], with, step, from);
    words = next;
  }
}

// Whether there is ballast for `count` exponents from the least of a warp's outputs on.
DEV bool have_ballast(const Range &r, int count) { return count <= MOST && (count < 3 || r.low >= LOW + MOST) && r.low + count - 1 <= HIGH; }

// How many exponents, from the least on, outputs have while `need` is added to them at most; 0 where that is more than have ballast.
DEV int exponents_within(const Range &r, float most, float need) {
  int count = 1;
  while (count <= MOST && !(power(r.low + count) - most > need)) count++;
  return have_ballast(r, count) ? count : 0;
}

// The largest exponent that products of a group of rows and two of columns may have at a place and the next one.
DEV int products_of(const Ballast &p, i64 of_a, i64 of_b, int place) {
  if (place >= p.pitch) return 2 * NONE;
  const i64 next = min(of_b + YS / 8, p.b_groups - 1);
  const u32 first = *(const u32 *)(p.b_tops + of_b * p.pitch + place), second = *(const u32 *)(p.b_tops + next * p.pitch + place);
  const u32 sums = __viaddmax_s16x2(*(const u32 *)(p.a_tops + of_a * p.pitch + place), __vmaxs2(first, second), 0x80008000u);
  return max((int)(short)sums, (int)sums >> 16);
}

// A warp owns 32 rows by 8·YS columns: two by YS tiles of the instruction.
extern "C" __global__ void __launch_bounds__(256, 2) ballast_gemm(const __grid_constant__ Ballast p) {
  extern __shared__ __align__(128) u8 shared[];
  const int down = (int)((p.m + TILE_M - 1) / TILE_M), across = (int)((p.n + TILE_N - 1) / TILE_N), band = 8;
  const int in_band = band * across, g0 = (int)blockIdx.x / in_band, rows = min(band, down - g0 * band);
  const int row0 = (g0 * band + (int)blockIdx.x % in_band % rows) * TILE_M, column0 = (int)blockIdx.x % in_band / rows * TILE_N;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int my_row = warp / 2 * 32, my_column = warp % 2 * 8 * YS;
  const bool idle = row0 + my_row >= p.m || column0 + my_column >= p.n;
  const int stages = (int)((p.blocks + STAGE_BLOCKS - 1) / STAGE_BLOCKS);
#define ROW(x, i) ((i64)(row0 + my_row + (x) * 16 + g + (i) / 2 * 8))
#define COLUMN(y, i) ((i64)(column0 + my_column + (y) * 8 + t * 2 + (i) % 2))
  float acc[2][YS][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < YS; y++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        acc[x][y][i] = p.c ? __uint_as_float(p.c[min(ROW(x, i), p.m - 1) * p.n + min(COLUMN(y, i), p.n - 1)]) : 0;

  u64 *fetched = (u64 *)(shared + STAGES * STAGE_BYTES), *done = fetched + STAGES;
  volatile int *last = (volatile int *)(done + STAGES);  // the stage at which all stop
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) prepare(fetched + i, 32 * WARPS), prepare(done + i, WARPS);
    *last = stages;
  }
  __syncthreads();
  load_stage(shared, p, row0, column0, 0);
  arrive_copied(fetched);
  float room = -1;   // how much more products may add before an output of a warp that shares an exponent has another one
  float slack = 0;   // more than roundings change an output in a stage
  Pair with = {0, 0, 0};
  u64 stop = *(volatile u64 *)(p.count + 1);
  int instructions = 0;  // of blocks whose outputs have exponents of products
  for (int stage = 0; stage < stages; stage++) {
    if (stage >= *last) return;
    const int slot = stage % STAGES, next = (stage + 1) % STAGES;
    if (stage + 1 < stages) {
      if (stage + 1 >= STAGES) wait_for<WARPS>(done + next, (stage + 1) / STAGES - 1);
      load_stage(shared + next * STAGE_BYTES, p, row0, column0, stage + 1);
      arrive_copied(fetched + next);
    }
    if (threadIdx.x == 0) {
      if (stop && *last == stages) *last = stage + STAGES;  // nobody is there before warp 0 has ended this one
      if (room < 0 || stage % 8 == 0) stop = *(volatile u64 *)(p.count + 1);
    }
    wait_for<32 * WARPS>(fetched + slot, stage / STAGES);
    const u8 *s = shared + slot * STAGE_BYTES, *at_row = s + my_row * 16, *at_column = s + PLANE(TILE_M) + my_column * 16;
    const Place lane_row = place_of(at_row + lane_offset(lane)), lane_column = place_of(at_column + lane_offset(lane));
    const Stage *known = (const Stage *)(s + KNOWN);
    const Stage of_a = known[my_row / 32], first = known[GROUPS_A + my_column / 32], second = YS == 8 ? known[GROUPS_A + my_column / 32 + 1] : first;
    const float products = of_a.size * max(first.size, second.size);  // no sum of an output's products in this stage is larger
    const int blocks = idle ? 0 : (int)min((i64)STAGE_BLOCKS, p.blocks - (i64)stage * STAGE_BLOCKS);
    room -= products + slack;
    const int top = of_a.top + max(first.top, second.top);
    int tops = NONE;  // of products at two places of a lane, once they are known
    bool told = false;
    for (int block = 0, run; block < blocks; block += run) {
      int count = 1;
      run = blocks - block;
      float from = 0;
      if (!(room > 0)) {
        const Range r = range_of(acc);
        const bool within = r.one_sign && r.low >= LOW && r.high <= HIGH;
        int largest = top;
        if (top > r.low) {
          if (!told) {
            tops = products_of(p, (row0 + my_row) / 32, (column0 + my_column) / 32, stage * CHUNKS * 8 + lane * 2);
            told = true;
          }
          largest = __reduce_max_sync(FULL, lane * 2 / W >= block ? tops : 2 * NONE);
        }
        count = 0;
        room = -1;
        if (within && r.high - r.low < MOST && largest <= r.low) {
          slack = power(max(r.low, -100) - 14);  // 16 blocks, each a last place of 2^(low + MOST) at most
          const float above = __uint_as_float((u32)r.least) - power(r.low), most = __uint_as_float((u32)r.most), need = products + slack;
          const float fall = p.sign == (i64)r.negative ? power(127) : above;  // how far an output may
          count = exponents_within(r, most, need);
          if (!(fall > need)) count = 0;
          if (count == 1) room = min(power(r.low + 1) - most, fall) - need;
        }
        if (!count) {
          run = 1;
          if (told) largest = __reduce_max_sync(FULL, lane * 2 / W == block ? tops : 2 * NONE);
          if (within && largest <= r.low && have_ballast(r, r.high - r.low + 1)) count = r.high - r.low + 1;
        }
        with = ballast(r.low, max(count, 1), lane);
        from = power(r.low);
      }
      if (count == 1) alike<1>(acc, lane_row, lane_column, block, run, with, from, lane);
      else if (count == 2) alike<2>(acc, lane_row, lane_column, block, run, with, from, lane);
      else if (count == 3) alike<3>(acc, lane_row, lane_column, block, run, with, from, lane);
      else if (count == 4) alike<4>(acc, lane_row, lane_column, block, run, with, from, lane);
      else {
        Words words;
        const u8 *in_rows = at_row + offset_of<TILE_M>(block), *in_columns = at_column + offset_of<TILE_N>(block);
        load_block(words, lane_row + offset_of<TILE_M>(block), lane_column + offset_of<TILE_N>(block));
        u32 ea[2][2][W / 2];
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
          for (int i = 0; i < W / 2; i++) ea[x / 2][x % 2][i] = exponents_of(((const u32 *)(in_rows + (x * 8 + g) * 16))[i]);
#pragma unroll
        for (int y = 0; y < YS; y++) {
          const u8 *column = in_columns + (y * 8 + t * 2) * 16;
          instructions += 2 * any_block(acc[0][y], acc[1][y], words.a, words.b[y], ea, (const u32 *)column, (const u32 *)(column + 16), lane);
        }
      }
    }
    __syncwarp();
    if (lane == 0) arrive(done + slot);
    const i64 patience = 64 + min((i64)192, p.blocks / 8);  // sums need some blocks before they are larger than products
    if (lane == 0 && instructions > 2 * YS * (p.limit * (stage + 1) * STAGE_BLOCKS + patience)) *(volatile u64 *)(p.count + 1) = 1;
  }
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < YS; y++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (ROW(x, i) >= p.m || COLUMN(y, i) >= p.n) continue;
        const u32 bits = __float_as_uint(acc[x][y][i]);
        p.d[ROW(x, i) * p.n + COLUMN(y, i)] = bits;
        if ((bits & 0x7FFFFFFF) > 0x7F800000) {
          const u64 at = atomicAdd(p.count, 1ull);
          if ((i64)at < p.room) p.list[at] = p.offset + ROW(x, i) * p.n + COLUMN(y, i);
        }
      }
}
