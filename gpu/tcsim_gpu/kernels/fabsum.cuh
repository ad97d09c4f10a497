// FABsum and multiword products on Hopper's tensor cores: Algorithms 4.2 to 4.4 of Fasi, Higham, Lopez, Mary and Mikaitis.
//
// A product is a list of phases, each one pair of matrices walked along k. All but the last phase run through one chain of
// the tensor core's accumulator. The last one is FABsum: blocks of B along k, each begun from zero (scale-d = 0, so nothing
// can merge the outer addition back into the unit), added outside in float (v1) or double (v2) to what came before.
//
// One producer warp brings tiles of 64 k by the bulk tensor copy engine; two warpgroups own 64 rows each. Double-precision
// additions and tensor instructions share a pipe, so what counts is how short the additions are, not when they come.
// With CHAINED every phase runs through the one chain, from c on, and nothing is added outside: the unit's own GEMM.
//
// The host defines BM and BN (rows and columns of a tile), BK (products in 128 bytes), B (the block), WIDE_SUM, ADD (the float
// addition's PTX), CONVERTED, TURNS, STAGES, VALUE_OF (a code's PTX conversion to float), CHAINED, B_ALONG_N (whether b lies along n
// in memory, not along k: 16-bit codes may) and mma(d, a, b, scale_d).
//
// Begins with fabsum_sums.cuh.

template <bool SCALED> __device__ __forceinline__ void add(Sum (&total)[R], const float (&d)[R], int shift) {
#pragma unroll
  for (int i = 0; i < R; i++) total[i] = sum(total[i], d[i], SCALED && !converted(i), shift);
}

// What a warpgroup reads and signals.
struct Group {
  u64 a, b;  // descriptors of its rows and of the columns in the first stage
  u32 full, empty;
  int tiles, me, shift;
  i64 k;
  bool speaks;

  __device__ __forceinline__ u64 a_of(int stage) const { return a + (u32)(stage * (A_TILE >> 4)); }
  __device__ __forceinline__ u64 b_of(int stage) const { return b + (u32)(stage * (B_TILE >> 4)); }
  __device__ __forceinline__ void ready(const Stage &s) const { wait(full + 8 * s.index, s.parity); }
  __device__ __forceinline__ void release(int stage) const {
    if (speaks) arrive(empty + 8 * stage);
  }
};

#if !CHAINED
#if B % BK == 0
template <bool SCALED> __device__ __forceinline__ void blocks(const Group &g, float (&acc)[R], Sum (&total)[R], Stage s) {
  if (g.me == 1) give_turn(1);
#pragma unroll 1
  for (int t = 0; t < g.tiles;) {
    int q = 0, before = -1;  // the stage whose tile the tensor core may still be reading
    take_turn(g.me);
    do {
      g.ready(s);
      const u64 a = g.a_of(s.index), b = g.b_of(s.index);
      begin(acc);
#pragma unroll
      for (int i = 0; i < 4; i++) mma(acc, a + 2 * i, b + B_STEP * i, i > 0 || q > 0);
      commit();
#if B > BK
      finish<1>(acc);
      if (before >= 0) g.release(before);
#endif
      before = s.index;
      next(s), q++, t++;
    } while (q < B / BK && t < g.tiles);
    if (t < g.tiles || g.me == 0) give_turn(g.me);
    finish<0>(acc);
    g.release(before);
    add<SCALED>(total, acc, g.shift);
  }
}
#else  // a block ends anywhere: one instruction at a time
template <bool SCALED> __device__ __forceinline__ void blocks(const Group &g, float (&acc)[R], Sum (&total)[R], Stage s) {
  int done = 0;  // instructions of the block so far
#pragma unroll 1
  for (int t = 0; t < g.tiles; t++, next(s)) {
    g.ready(s);
    const u64 a = g.a_of(s.index), b = g.b_of(s.index);
    for (int i = 0; i < 4 && (i64)t * BK + i * 16 < g.k; i++) {
      begin(acc);
      mma(acc, a + 2 * i, b + B_STEP * i, done > 0);
      commit();
      finish<0>(acc);
      if (++done == B / 16) {
        done = 0;
        add<SCALED>(total, acc, g.shift);
      }
    }
    g.release(s.index);
  }
  if (done) add<SCALED>(total, acc, g.shift);
}
#endif
#endif

// All phases but the last, through the tensor core's own accumulator from acc on.
__device__ __forceinline__ void chain(const Group &g, float (&acc)[R], int tiles, Stage &s) {
  int before = -1;
#pragma unroll 1
  for (int t = 0; t < tiles; t++, next(s)) {
    g.ready(s);
    const u64 a = g.a_of(s.index), b = g.b_of(s.index);
    begin(acc);
#pragma unroll
    for (int i = 0; i < 4; i++) mma(acc, a + 2 * i, b + B_STEP * i, 1);
    commit();
    finish<1>(acc);
    if (before >= 0) g.release(before);
    before = s.index;
  }
  finish<0>(acc);
  if (before >= 0) g.release(before);
}

#if !CHAINED
__device__ __forceinline__ float value_of(u32 code) {
  float x;
  const unsigned short bits = (unsigned short)code;
  asm(VALUE_OF " %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

// Whether no block of the last phase can be infinite or NaN.
__device__ __forceinline__ bool blocks_are_finite(const Product &p) {
  return value_of(p.largest[0]) * value_of(p.largest[1]) * (float)B < 8.5e37f;  // 2^126
}

// The largest magnitude among n codes (a whole number of eights), of a's words and of b's.
extern "C" __global__ void largest(const uint4 *a, const uint4 *b, i64 a_count, i64 b_count, u32 *to) {
  const uint4 *from = blockIdx.y ? b : a;
  u32 most = 0;
  const i64 count = blockIdx.y ? b_count : a_count, step = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 x = from[i];
    most = __vmaxu2(__vmaxu2(most, x.x & 0x7FFF7FFFu), x.y & 0x7FFF7FFFu);
    most = __vmaxu2(__vmaxu2(most, x.z & 0x7FFF7FFFu), x.w & 0x7FFF7FFFu);
  }
  most = __reduce_max_sync(0xFFFFFFFFu, max(most & 0xFFFFu, most >> 16));
  if (threadIdx.x % 32 == 0) atomicMax(to + blockIdx.y, most);
}

#endif

// What an accumulator begins with. In PTX: the compiler would have all addresses first, more than there are registers for.
__device__ __forceinline__ void load(float &to, const Product &p, int row, int column) {
  const int known = p.c && row < p.m && column < p.n;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.f32 %0, 0f00000000;\n@p ld.global.f32 %0, [%1];\n}"
               : "=&f"(to) : "l"(p.c + (i64)row * p.n + column), "r"(known) : "memory");
}

// The other lane of two neighbours' x. In PTX: next to the compiler's own shuffles it would make the tensor instructions wait for each other.
__device__ __forceinline__ float of_neighbour(float x) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;" : "=f"(y) : "f"(x));
  return y;
}

// The tile of a warpgroup at its place: neighbouring lanes exchange halves, so that each stores four columns at once.
__device__ __forceinline__ void put(const Product &p, int row, int column, int lane, const float (&x)[R]) {
  const bool odd = lane & 1;
#pragma unroll
  for (int i = 0; i < R; i += 8)
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      const float *left = x + i + half, *right = left + 4;
      const float other0 = of_neighbour(odd ? left[0] : right[0]);
      const float other1 = of_neighbour(odd ? left[1] : right[1]);
      const int r = row + half * 4, c = column + i * 2 + (odd ? 8 : 0) + lane % 4 / 2 * 4;
      if (r >= p.m || c >= p.n) continue;
      *(float4 *)(p.d + (i64)r * p.n + c) =
          odd ? make_float4(other0, other1, right[0], right[1]) : make_float4(left[0], left[1], other0, other1);
    }
}

// The same where rows do not begin at multiples of 16 bytes.
__device__ __forceinline__ void put_singly(const Product &p, int row, int column, int lane, const float (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    const int r = row + i % 4 / 2 * 8, c = column + lane % 4 * 2 + i / 4 * 8 + i % 2;
    if (r < p.m && c < p.n) p.d[(i64)r * p.n + c] = x[i];
  }
}

extern "C" __global__ void __launch_bounds__(384, 1) fabsum(const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) u8 shared[];
  const Room room = room_of(shared);
  const Corner corner = corner_of(p);
  const int row0 = corner.row, column0 = corner.column, tiles = (int)((p.k + BK - 1) / BK);
  if (threadIdx.x == 0) begin_barriers(room, 2);
  __syncthreads();

  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) bring(p, room, corner, tiles);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int me = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const u64 a = descriptor(room.a + me * (64 * ROW_BYTES)), b = descriptor_b(room.b);
    const Group g = {a, b, room.full, room.empty, tiles, me, p.shift, p.k, threadIdx.x % 128 == 0};
    const int row = row0 + me * 64 + warp * 16 + lane / 4, column = column0 + lane % 4 * 2;
    float acc[R];
#pragma unroll
    for (int i = 0; i < R; i++) load(acc[i], p, row + i % 4 / 2 * 8, column + i / 4 * 8 + i % 2);
    Stage s = {0, 0};
#if CHAINED
    chain(g, acc, p.phases * tiles, s);
#else
    chain(g, acc, (p.phases - 1) * tiles, s);
    Sum total[R];
#if WIDE_SUM
    const bool finite = blocks_are_finite(p);
    const Sum down_by = finite ? 0x1p-896 : 1, up_by = finite ? 0x1p896 : 1;
#pragma unroll
    for (int i = 0; i < R; i++) total[i] = widened(acc[i]) * (converted(i) ? 1 : down_by);
    if (finite) blocks<true>(g, acc, total, s);
    else blocks<false>(g, acc, total, s);
#else
    const Sum up_by = 1;
#pragma unroll
    for (int i = 0; i < R; i++) total[i] = acc[i];
    blocks<false>(g, acc, total, s);
#endif
#pragma unroll
    for (int i = 0; i < R; i++) acc[i] = result(total[i], converted(i) ? 1 : up_by);
#endif
    if (p.n % 4 == 0) put(p, row, column0, lane, acc);
    else put_singly(p, row, column0, lane, acc);
  }
}
