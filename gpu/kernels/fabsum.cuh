// FABsum and multiword products on Hopper's tensor cores: Algorithms 4.2 to 4.4 of Fasi, Higham, Lopez, Mary and Mikaitis.
//
// A product is a list of phases, each one pair of matrices walked along k. All but the last phase run through one chain of
// the tensor core's accumulator. The last one is FABsum: blocks of B along k, each begun from zero (scale-d = 0, so nothing
// can merge the outer addition back into the unit), added outside in float (v1) or double (v2) to what came before.
//
// One producer warp brings tiles of 64 k by the bulk tensor copy engine; two warpgroups own 64 rows each.
// The host defines BN (columns of a tile), B (the block), WIDE_SUM, PLAIN (no infinities or NaN, no tiny c), TURNS, STAGES and
// mma(d, a, b, scale_d).

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define BM 128
#define BK 64
#define A_TILE (BM * BK * 2)
#define B_TILE (BN * BK * 2)
#define R (BN / 2)  // accumulator registers of a thread
#if WIDE_SUM
typedef double Sum;
#else
typedef float Sum;
#endif

struct __align__(64) Map {
  u8 bytes[128];
};

struct Product {
  Map a[3], b[3];
  const float *c;
  float *d;
  i64 m, n, k;
  int phases, which_a[6], which_b[6], unused;
};

__device__ __forceinline__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void wait(u64 *barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra READY;\nbra AGAIN;\nREADY:\n}"
      ::"r"(address(barrier)), "r"(parity) : "memory");
}

__device__ __forceinline__ void arrive(u64 *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ __forceinline__ void expect(u64 *barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void fetch(void *to, const Map *map, int k, int row, u64 *barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(address(to)), "l"(map), "r"(k), "r"(row), "r"(address(barrier)) : "memory");
}

// Rows of 128 bytes along k with the 128-byte swizzle: 1,024 bytes from one eight rows to the next.
__device__ __forceinline__ u64 descriptor(const void *p) {
  return (u64)((address(p) & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void hold(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ void begin(float (&d)[R]) {
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N_> __device__ __forceinline__ void finish(float (&d)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N_) : "memory");
  hold(d);
}

// A float as a double, without the slow conversion unit. PLAIN: the caller knows that x is zero or normal; a zero becomes
// 2^-127, which no rounded sum of the numbers here can see (float16 products are at least 2^-48) and `result` drops.
__device__ __forceinline__ Sum widened(float x) {
#if WIDE_SUM && PLAIN
  const u64 bits = (u64)__float_as_uint(fabsf(x)) * (1u << 29) + 0x3800000000000000ull;
  return __hiloint2double((int)((u32)(bits >> 32) | (__float_as_uint(x) & 0x80000000u)), (int)(u32)bits);
#else
  return x;
#endif
}

__device__ __forceinline__ float result(Sum x) {
#if WIDE_SUM && PLAIN
  if (fabs(x) < 7.888609052210118e-31) return 0;  // 2^-100
#endif
  return (float)x;
}

// With small blocks the two warpgroups take turns: one adds up while the other has the tensor cores.
__device__ __forceinline__ void take_turn(int me) {
#if TURNS
  asm volatile("bar.sync %0, 256;" ::"r"(1 + me) : "memory");
#endif
}

__device__ __forceinline__ void give_turn(int me) {
#if TURNS
  asm volatile("bar.arrive %0, 256;" ::"r"(2 - me) : "memory");
#endif
}

struct Stage {
  int index;
  u32 parity;
};

__device__ __forceinline__ void next(Stage &s) {
  if (++s.index == STAGES) s.index = 0, s.parity ^= 1;
}

extern "C" __global__ void __launch_bounds__(384, 1) fabsum(const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) u8 shared[];
  u8 *const a_tiles = shared, *const b_tiles = shared + STAGES * A_TILE;
  u64 *const full = (u64 *)(b_tiles + STAGES * B_TILE), *const empty = full + STAGES;
  const i64 down = (p.m + BM - 1) / BM, across = (p.n + BN - 1) / BN, group = 16;
  const i64 in_group = group * across, g = blockIdx.x / in_group, rows = min(group, down - g * group);
  const int row0 = (int)((g * group + blockIdx.x % in_group % rows) * BM), column0 = (int)(blockIdx.x % in_group / rows * BN);
  const int tiles = (int)((p.k + BK - 1) / BK);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(full + s)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(address(empty + s)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      Stage s = {0, 1};
      for (int phase = 0; phase < p.phases; phase++)
        for (int t = 0; t < tiles; t++, next(s)) {
          wait(empty + s.index, s.parity);
          expect(full + s.index, A_TILE + B_TILE);
          fetch(a_tiles + s.index * A_TILE, p.a + p.which_a[phase], t * BK, row0, full + s.index);
          fetch(b_tiles + s.index * B_TILE, p.b + p.which_b[phase], t * BK, column0, full + s.index);
        }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int group_of_warps = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const bool speaks = threadIdx.x % 128 == 0;
    const int row = row0 + group_of_warps * 64 + warp * 16 + lane / 4, column = column0 + lane % 4 * 2;
    float acc[R];
    Sum total[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8 + i % 2;
      acc[i] = 0;
      total[i] = p.c && r < p.m && c < p.n ? p.c[(i64)r * p.n + c] : 0.0f;
    }
    Stage s = {0, 0};
    int before = -1;  // the stage whose tile the tensor core may still be reading
#define A_OF(s) descriptor(a_tiles + (s) * A_TILE + group_of_warps * (64 * BK * 2))
#define B_OF(s) descriptor(b_tiles + (s) * B_TILE)

    if (p.phases > 1) {
#pragma unroll
      for (int i = 0; i < R; i++) acc[i] = (float)total[i];
      for (int t = 0; t < (p.phases - 1) * tiles; t++, next(s)) {
        wait(full + s.index, s.parity);
        const u64 a = A_OF(s.index), b = B_OF(s.index);
        begin(acc);
#pragma unroll
        for (int i = 0; i < 4; i++) mma(acc, a + 2 * i, b + 2 * i, 1);
        commit();
        finish<1>(acc);
        if (before >= 0 && speaks) arrive(empty + before);
        before = s.index;
      }
      finish<0>(acc);
      if (speaks) arrive(empty + before);
#pragma unroll
      for (int i = 0; i < R; i++) total[i] = acc[i];
    }

#if B % BK == 0
    if (group_of_warps == 1) give_turn(1);
    for (int t = 0; t < tiles;) {
      const int end = min(t + B / BK, tiles);
      before = -1;
      take_turn(group_of_warps);
      for (int first = 1; t < end; t++, next(s), first = 0) {
        wait(full + s.index, s.parity);
        const u64 a = A_OF(s.index), b = B_OF(s.index);
        begin(acc);
#pragma unroll
        for (int i = 0; i < 4; i++) mma(acc, a + 2 * i, b + 2 * i, i > 0 || !first);
        commit();
#if B > BK
        finish<1>(acc);
        if (before >= 0 && speaks) arrive(empty + before);
#endif
        before = s.index;
      }
      if (t < tiles || group_of_warps == 0) give_turn(group_of_warps);
      finish<0>(acc);
      if (speaks) arrive(empty + before);
#pragma unroll
      for (int i = 0; i < R; i++) total[i] += widened(acc[i]);
    }
#else  // a block ends anywhere: one instruction at a time
    int done = 0;  // instructions of the block so far
    for (int t = 0; t < tiles; t++, next(s)) {
      wait(full + s.index, s.parity);
      const u64 a = A_OF(s.index), b = B_OF(s.index);
      for (int i = 0; i < 4 && (i64)t * BK + i * 16 < p.k; i++) {
        begin(acc);
        mma(acc, a + 2 * i, b + 2 * i, done > 0);
        commit();
        finish<0>(acc);
        if (++done == B / 16) {
          done = 0;
#pragma unroll
          for (int j = 0; j < R; j++) total[j] += widened(acc[j]);
        }
      }
      if (speaks) arrive(empty + s.index);
    }
    if (done) {
#pragma unroll
      for (int j = 0; j < R; j++) total[j] += widened(acc[j]);
    }
#endif
#pragma unroll
    for (int i = 0; i < R; i += 2) {
      const int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8;
      if (r >= p.m) continue;
      float *to = p.d + (i64)r * p.n + c;
      if (c + 1 < p.n && p.n % 2 == 0) *(float2 *)to = make_float2(result(total[i]), result(total[i + 1]));
      else {
        if (c < p.n) to[0] = result(total[i]);
        if (c + 1 < p.n) to[1] = result(total[i + 1]);
      }
    }
  }
}
