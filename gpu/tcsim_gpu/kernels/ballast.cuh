// Units whose blocks keep fewer bits than the tensor core here, on that tensor core: fp16 and bf16 of A100, fp16 of V100 on Hopper.
//
// Two more products, +2^s and -2^s with s = e + F' - F, cancel, but align a block of the core's, which keeps F' bits, where the unit
// aligns its own, of largest exponent e and F bits. `ballast.py` has the proof. e is that of an output and a block: an instruction
// serves those of its 16 x 8 outputs that share one, and is repeated for the next e. Where sums of one sign have grown beyond every
// product, e is the output's own; a warp whose outputs lie between 2^e and 2^(e+2), and cannot leave in a stage of 64 products,
// computes it with one or two instructions a block, and looks at nothing else. Other stages are looked at block by block.
//
// The host defines W, the products of a block in memory (4 or 8), SHIFT = F' - F, LOW and HIGH, the least and the largest e that have
// ballast, of the operands' format MB, BIAS, INF_CODE and TYPE, its name in PTX, and, but for CUDA, what CUDA's words mean.

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

#define TILE 128
#define GROUPS (TILE / 32)    // of rows and of columns in a tile
#define STAGES 3
#define PITCH (TILE + 1)      // rows of a chunk: one more, so that copies of eight chunks meet in no bank
#define PLANE (CHUNKS * PITCH * 16)
#define STAGE_BYTES (2 * PLANE + 2 * GROUPS * 8)  // codes of a, of b, and what is known of their groups
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

DEV void end_of_stage() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;");
#endif
}

DEV void wait_for_stage() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
#endif
}

// A stage of TILE rows from row0 on. What lies outside the operand is its last row, so that outputs outside the result are like others
// and nobody need tell them apart, and its last 16 bytes, which no block reads.
DEV void copy_side(u8 *to, const u16 *from, int row0, int rows, u32 pitch, int chunk0) {
  const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
  const u16 *column = from + min(chunk0 + chunk, (int)(pitch / 8) - 1) * 8;
#pragma unroll
  for (int r = 0; r < TILE; r += 256 / CHUNKS)
    copy<16>(to + (chunk * PITCH + first + r) * 16, column + (u64)(u32)min(row0 + first + r, rows - 1) * pitch);
}

DEV void load_stage(u8 *s, const Ballast &p, int row0, int column0, int stage) {
  copy_side(s, p.a, row0, (int)p.m, (u32)p.pitch, stage * CHUNKS);
  copy_side(s + PLANE, p.b, column0, (int)p.n, (u32)p.pitch, stage * CHUNKS);
  if (threadIdx.x < 2 * GROUPS) {
    const bool of_a = threadIdx.x < GROUPS;
    const i64 groups = of_a ? p.a_groups : p.b_groups, group = (of_a ? row0 : column0) / 32 + threadIdx.x % GROUPS;
    copy<8>(s + 2 * PLANE + threadIdx.x * 8, (of_a ? p.a_stages : p.b_stages) + stage * groups + min(group, groups - 1));
  }
  end_of_stage();
}

// Bytes from a plane's block 0 to another one of the same row.
DEV int offset_of(int block) { return block / PER_CHUNK * PITCH * 16 + block % PER_CHUNK * W * 2; }

// Where a lane's words of a plane's block 0 begin, in bytes: row g of eight, places t of a block.
DEV u32 lane_offset(int lane) { return held((u32)(lane / 4 * 16 + lane % 4 % (W / 2) * 4)); }

// A block's operands for a warp's two by eight tiles of the instruction, as a lane holds them.
DEV void load_block(u32 (&a)[2][2], u32 (&b)[8], const u8 *rows, const u8 *columns, bool holds) {
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int half = 0; half < 2; half++) a[x][half] = W == 8 || holds ? *(const u32 *)(rows + (x * 16 + half * 8) * 16) : 0;
#pragma unroll
  for (int y = 0; y < 8; y++) b[y] = W == 8 || holds ? *(const u32 *)(columns + y * 8 * 16) : 0;
}

// Blocks whose outputs, before each, have one of COUNT exponents, the least of which begins at `from`.
template <int COUNT> DEV void alike(float (&acc)[2][8][4], const u8 *rows, const u8 *columns, int block, int run, Pair with, float from, int lane) {
  with.a = held(with.a), with.b = held(with.b);
  const u32 step = COUNT > 1 && holds_ballast(lane) ? STEP : 0;
  const bool holds = lane % 4 < W / 2;
  rows += lane_offset(lane), columns += lane_offset(lane);
#pragma unroll 1
  for (const int end = block + run; block < end; block++) {
    u32 a[2][2], b[8];
    load_block(a, b, rows + offset_of(block), columns + offset_of(block), holds);
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
      for (int y = 0; y < 8; y++) {
        if (COUNT == 1) {
          mma(acc[x][y], a[x][0], a[x][1], b[y], with.a, with.b, acc[x][y]);
          continue;
        }
        float out[4];
        mma(out, a[x][0], a[x][1], b[y], with.a, with.b, acc[x][y]);
#pragma unroll
        for (int next = 1; next < COUNT; next++) {
          float d[4];
          mma(d, a[x][0], a[x][1], b[y], with.a, with.b + next * step, acc[x][y]);
#pragma unroll
          for (int i = 0; i < 4; i++) out[i] = fabsf(acc[x][y][i]) >= from * (1 << next) ? d[i] : out[i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) acc[x][y][i] = out[i];
      }
  }
}

// The largest exponent that products of a group of rows and two of columns may have at a place and the next one.
DEV int products_of(const Ballast &p, i64 of_a, i64 of_b, int place) {
  if (place >= p.pitch) return 2 * NONE;
  const i64 next = min(of_b + 1, p.b_groups - 1);
  const u32 first = *(const u32 *)(p.b_tops + of_b * p.pitch + place), second = *(const u32 *)(p.b_tops + next * p.pitch + place);
  const u32 sums = __viaddmax_s16x2(*(const u32 *)(p.a_tops + of_a * p.pitch + place), __vmaxs2(first, second), 0x80008000u);
  return max((int)(short)sums, (int)sums >> 16);
}

// A warp owns 32 rows by 64 columns: two by eight tiles of the instruction.
extern "C" __global__ void __launch_bounds__(256, 2) ballast_gemm(const __grid_constant__ Ballast p) {
  extern __shared__ __align__(128) u8 shared[];
  const int down = (int)((p.m + TILE - 1) / TILE), across = (int)((p.n + TILE - 1) / TILE), band = 8;
  const int in_band = band * across, g0 = (int)blockIdx.x / in_band, rows = min(band, down - g0 * band);
  const int row0 = (g0 * band + (int)blockIdx.x % in_band % rows) * TILE, column0 = (int)blockIdx.x % in_band / rows * TILE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int my_row = warp / 2 * 32, my_column = warp % 2 * 64;
  const bool idle = row0 + my_row >= p.m || column0 + my_column >= p.n;
  const int stages = (int)((p.blocks + STAGE_BLOCKS - 1) / STAGE_BLOCKS);
#define ROW(x, i) ((i64)(row0 + my_row + (x) * 16 + g + (i) / 2 * 8))
#define COLUMN(y, i) ((i64)(column0 + my_column + (y) * 8 + t * 2 + (i) % 2))
  float acc[2][8][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        acc[x][y][i] = p.c ? __uint_as_float(p.c[min(ROW(x, i), p.m - 1) * p.n + min(COLUMN(y, i), p.n - 1)]) : 0;

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) load_stage(shared + s * STAGE_BYTES, p, row0, column0, s);
    else end_of_stage();
  }
  float room = -1;   // how much more products may add before an output of a warp that shares an exponent has another one
  float slack = 0;   // more than roundings change an output in a stage
  Pair with = {0, 0};
  u64 stop = *(volatile u64 *)(p.count + 1);
  int instructions = 0;  // of blocks whose outputs have exponents of products
  for (int stage = 0; stage < stages; stage++) {
    wait_for_stage();
    if (__syncthreads_or(stop != 0)) return;
    if (stage + STAGES - 1 < stages)
      load_stage(shared + (stage + STAGES - 1) % STAGES * STAGE_BYTES, p, row0, column0, stage + STAGES - 1);
    else end_of_stage();
    if (threadIdx.x == 0 && (room < 0 || stage % 8 == 0)) stop = *(volatile u64 *)(p.count + 1);
    if (idle) continue;
    const u8 *s = shared + stage % STAGES * STAGE_BYTES, *at_row = s + my_row * 16, *at_column = s + PLANE + my_column * 16;
    const Stage *known = (const Stage *)(s + 2 * PLANE);
    const Stage of_a = known[my_row / 32], first = known[GROUPS + my_column / 32], second = known[GROUPS + my_column / 32 + 1];
    const float products = of_a.size * max(first.size, second.size);  // no sum of an output's products in this stage is larger
    const int blocks = (int)min((i64)STAGE_BLOCKS, p.blocks - (i64)stage * STAGE_BLOCKS);
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
        if (within && r.high - r.low <= 1 && largest <= r.low) {
          slack = power(max(r.low, -100) - 14);  // 16 blocks, each a last place of 2^(low + 2) at most
          const float above = __uint_as_float((u32)r.least) - power(r.low), most = __uint_as_float((u32)r.most), need = products + slack;
          const float fall = p.sign == (i64)r.negative ? power(127) : above;  // how far an output may
          room = min(power(r.low + 1) - most, fall) - need;
          if (room > 0) count = 1;
          else {
            room = -1;
            if (r.low < HIGH && min(power(r.low + 2) - most, fall) > need) count = 2;
          }
        }
        if (!count) {
          run = 1;
          if (told) largest = __reduce_max_sync(FULL, lane * 2 / W == block ? tops : 2 * NONE);
          if (within && largest <= r.low && r.high - r.low < MOST && (r.high - r.low < 2 || r.low >= LOW + MOST)) count = r.high - r.low + 1;
        }
        with = ballast(r.low, max(count, 1), lane);
        from = power(r.low);
      }
      if (count == 1) alike<1>(acc, at_row, at_column, block, run, with, from, lane);
      else if (count == 2) alike<2>(acc, at_row, at_column, block, run, with, from, lane);
      else if (count == 3) alike<3>(acc, at_row, at_column, block, run, with, from, lane);
      else if (count == 4) alike<4>(acc, at_row, at_column, block, run, with, from, lane);
      else {
        u32 a[2][2], b[8];
        const u8 *in_rows = at_row + offset_of(block), *in_columns = at_column + offset_of(block);
        load_block(a, b, in_rows + lane_offset(lane), in_columns + lane_offset(lane), t < W / 2);
        u32 ea[2][2][W / 2];
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
          for (int i = 0; i < W / 2; i++) ea[x / 2][x % 2][i] = exponents_of(((const u32 *)(in_rows + (x * 8 + g) * 16))[i]);
#pragma unroll
        for (int y = 0; y < 8; y++) {
          const u8 *column = in_columns + (y * 8 + t * 2) * 16;
          instructions += 2 * any_block(acc[0][y], acc[1][y], a, b[y], ea, (const u32 *)column, (const u32 *)(column + 16), lane);
        }
      }
    }
    const i64 patience = 64 + min((i64)192, p.blocks / 8);  // sums need some blocks before they are larger than products
    if (lane == 0 && instructions > 16 * (p.limit * (stage + 1) * STAGE_BLOCKS + patience)) *(volatile u64 *)(p.count + 1) = 1;
  }
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++)
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
