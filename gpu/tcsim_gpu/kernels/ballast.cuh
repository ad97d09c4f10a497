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
  const short *a_tops, *b_tops;      // (blocks, groups)
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
#define MANY 6                // exponents of a warp's outputs that are taken one after the other

template <int BYTES> DEV void copy_or_zeros(void *to, const void *from, bool there) {
#ifdef __CUDACC__
  const u32 at = (u32)__cvta_generic_to_shared(to);
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0));
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from));
#else
  if (there) memcpy(to, from, BYTES);
  else memset(to, 0, BYTES);
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

DEV void copy_side(u8 *to, const u16 *from, i64 rows, i64 pitch, i64 chunk0) {
  const int chunk = threadIdx.x % CHUNKS, row0 = threadIdx.x / CHUNKS;
  const bool within = (chunk0 + chunk) * 8 < pitch;
  const u16 *first = from + row0 * pitch + (chunk0 + chunk) * 8;
#pragma unroll
  for (int r = 0; r < TILE; r += 256 / CHUNKS) {
    const bool there = within && row0 + r < rows;
    copy_or_zeros<16>(to + (chunk * PITCH + row0 + r) * 16, there ? first + r * pitch : from, there);
  }
}

DEV void load_stage(u8 *s, const Ballast &p, i64 row0, i64 column0, i64 stage) {
  copy_side(s, p.a + row0 * p.pitch, p.m - row0, p.pitch, stage * CHUNKS);
  copy_side(s + PLANE, p.b + column0 * p.pitch, p.n - column0, p.pitch, stage * CHUNKS);
  if (threadIdx.x < 2 * GROUPS) {
    const bool of_a = threadIdx.x < GROUPS;
    const i64 groups = of_a ? p.a_groups : p.b_groups, group = (of_a ? row0 : column0) / 32 + threadIdx.x % GROUPS;
    copy_or_zeros<8>(s + 2 * PLANE + threadIdx.x * 8, (of_a ? p.a_stages : p.b_stages) + stage * groups + min(group, groups - 1), true);
  }
  end_of_stage();
}

// Words of a block of one row in a plane of a stage.
DEV const u32 *block_of(const u8 *plane, int block, int row) {
  return (const u32 *)(plane + ((block / PER_CHUNK) * PITCH + row) * 16) + block % PER_CHUNK * (W / 2);
}

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

// Blocks of a stage whose outputs all have the exponent of the ballast or, for TWO, have it, from `from` on, or one less.
template <bool TWO> DEV void alike(float (&acc)[2][8][4], const u8 *rows, const u8 *columns, int blocks, const Pair &pair, float from, int lane) {
  const Pair with = {held(pair.a), held(pair.b), TWO ? held(pair.less) : 0};
  const u32 offset = lane_offset(lane);
  const bool holds = lane % 4 < W / 2;
  rows += offset, columns += offset;
#pragma unroll 1
  for (int block = 0; block < blocks; block++) {
    u32 a[2][2], b[8];
    load_block(a, b, rows, columns, holds);
    const int step = block % PER_CHUNK + 1 == PER_CHUNK ? PITCH * 16 - (PER_CHUNK - 1) * W * 2 : W * 2;  // to the next block
    rows += step, columns += step;
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
      for (int y = 0; y < 8; y++) {
        if (!TWO) {
          mma(acc[x][y], a[x][0], a[x][1], b[y], with.a, with.b, acc[x][y]);
          continue;
        }
        float d[4], e[4];
        mma(d, a[x][0], a[x][1], b[y], with.a, with.less, acc[x][y]);
        mma(e, a[x][0], a[x][1], b[y], with.a, with.b, acc[x][y]);
#pragma unroll
        for (int i = 0; i < 4; i++) acc[x][y][i] = fabsf(acc[x][y][i]) >= from ? e[i] : d[i];
      }
  }
}

// A warp owns 32 rows by 64 columns: two by eight tiles of the instruction.
extern "C" __global__ void __launch_bounds__(256, 2) ballast_gemm(const __grid_constant__ Ballast p) {
  extern __shared__ __align__(128) u8 shared[];
  const i64 down = (p.m + TILE - 1) / TILE, across = (p.n + TILE - 1) / TILE, band = 8;
  const i64 in_band = band * across, g0 = blockIdx.x / in_band, rows = min(band, down - g0 * band);
  const i64 row0 = (g0 * band + blockIdx.x % in_band % rows) * TILE, column0 = blockIdx.x % in_band / rows * TILE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int my_row = warp / 2 * 32, my_column = warp % 2 * 64;
  const bool idle = row0 + my_row >= p.m || column0 + my_column >= p.n;
  const bool edge = row0 + my_row + 32 > p.m || column0 + my_column + 64 > p.n;
  const int stages = (int)((p.blocks + STAGE_BLOCKS - 1) / STAGE_BLOCKS);
#define ROW(x, i) (row0 + my_row + (x) * 16 + g + (i) / 2 * 8)
#define COLUMN(y, i) (column0 + my_column + (y) * 8 + t * 2 + (i) % 2)
  float acc[2][8][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        acc[x][y][i] = p.c && ROW(x, i) < p.m && COLUMN(y, i) < p.n ? __uint_as_float(p.c[ROW(x, i) * p.n + COLUMN(y, i)]) : 0;

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) load_stage(shared + s * STAGE_BYTES, p, row0, column0, s);
    else end_of_stage();
  }
  float room = -1;   // how much more products may add before an output of a warp that shares an exponent has another one
  float slack = 0;   // more than roundings change an output in a stage
  Pair with = {0, 0, 0};
  u64 stop = *(volatile u64 *)(p.count + 1);
  i64 instructions = 0;  // of blocks whose outputs have exponents of products
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
    bool one = room > 0, two = false;
    Range r;
    const auto look = [&]() {
      if (edge) {  // what lies outside the result shall not stand apart
        const u32 like_others = (__shfl_sync(FULL, __float_as_uint(acc[0][0][0]), 0) & 0xFF800000) | 0x400000;
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int y = 0; y < 8; y++)
#pragma unroll
            for (int i = 0; i < 4; i++)
              if (ROW(x, i) >= p.m || COLUMN(y, i) >= p.n) acc[x][y][i] = __uint_as_float(like_others);
      }
      return range_of(acc);
    };
    if (!one) {
      r = look();
      room = -1;
      if (r.one_sign && r.low >= LOW && r.low < HIGH && r.high - r.low <= 1 && of_a.top + max(first.top, second.top) <= r.low) {
        slack = power(max(r.low, -100) - 14);  // 16 blocks, each a last place of 2^(low + 2) at most
        const float above = __uint_as_float((u32)r.least) - power(r.low), most = __uint_as_float((u32)r.most), need = products + slack;
        const float fall = p.sign == (i64)r.negative ? power(127) : above;  // how far an output may
        room = min(power(r.low + 1) - most, fall) - need;
        one = room > 0;
        two = !one && min(power(r.low + 2) - most, fall) > need;
        with = ballast(one ? r.low : r.low + 1, lane);
        if (!one) room = -1;
      }
    }
    if (one) {
      alike<false>(acc, at_row, at_column, blocks, with, 0, lane);
      continue;
    }
    if (two) {
      alike<true>(acc, at_row, at_column, blocks, with, power(r.low + 1), lane);
      continue;
    }
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
      if (block) r = look();
      u32 a[2][2], b[8];
      const u32 offset = (u32)((const u8 *)block_of(s, block, 0) - s) + lane_offset(lane);
      load_block(a, b, at_row + offset, at_column + offset, lane % 4 < W / 2);
      const i64 at = (i64)stage * STAGE_BLOCKS + block, group_a = (row0 + my_row) / 32, group_b = (column0 + my_column) / 32;
      const short *of_b = p.b_tops + at * p.b_groups + group_b;
      const int largest = p.a_tops[at * p.a_groups + group_a] + max((int)of_b[0], (int)of_b[group_b + 1 < p.b_groups ? 1 : 0]);
      if (r.one_sign && r.low >= LOW && r.high <= HIGH && r.high - r.low < MANY && largest <= r.low) {
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int y = 0; y < 8; y++) few_exponents(acc[x][y], a[x][0], a[x][1], b[y], r.low, r.high, lane);
        continue;
      }
#pragma unroll
      for (int x = 0; x < 2; x++)
#pragma unroll
        for (int y = 0; y < 8; y++)
          instructions += any_block(acc[x][y], a[x][0], a[x][1], b[y], block_of(at_row, block, x * 16 + g),
                                    block_of(at_row, block, x * 16 + 8 + g), block_of(at_column, block, y * 8 + t * 2),
                                    block_of(at_column, block, y * 8 + t * 2 + 1), lane);
    }
    if (lane == 0 && instructions > 16 * (p.limit * (stage + 1) * STAGE_BLOCKS + 64)) *(volatile u64 *)(p.count + 1) = 1;
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
