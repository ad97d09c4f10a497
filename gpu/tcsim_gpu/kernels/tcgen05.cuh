// tcgen05.mma: four warps; operands in shared memory without swizzle, k contiguous in core matrices of 8 rows by 16 bytes;
// the accumulator in tensor memory, row i in lane i and column j in column j; one thread issues.
//
// The host defines DESCRIPTOR (of an operand at address 0), A_BITS and B_BITS (from one element to the next), and
// step(d, a, b[, sa, sb]). Compiles for sm_100a; never run: no GPU that has it was at hand.

#define COLUMNS 32  // of tensor memory, the least that can be allocated: 0-15 results, 16-19 scales of a, 20 scales of b
#define SCALES_A 16
#define SCALES_B 20

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ u64 descriptor(const void *p) { return DESCRIPTOR | (shared_address(p) & 0x3FFFF) >> 4; }

// The 16 bytes of K / 2 elements from k on: `bits` each, from the first bit on.
template <class Code> __device__ __forceinline__ void put(u8 *tile, int line, int chunk, int bits, Code code) {
  u64 low = 0, high = 0;
#pragma unroll
  for (int e = 0; e < K / 2; e++) {
    const u64 x = code(e);
    const int at = e * bits;
    if (at < 64) low |= x << at;
    if (at >= 64) high |= x << (at - 64);
    if (at < 64 && at + bits > 64) high |= x >> (64 - at);
  }
  u64 *to = (u64 *)(tile + line / 8 * 256 + chunk * 128 + line % 8 * 16);
  to[0] = low;
  to[1] = high;
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra.uni done;\nbra.uni again;\ndone:\n}"
      ::"r"(barrier), "r"(parity)
      : "memory");
}

__device__ __forceinline__ void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

__device__ __forceinline__ void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

__device__ __forceinline__ void store_results(u32 at, const R_D (&d)[D_REGS]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16};\n"
      "tcgen05.wait::st.sync.aligned;" ::"r"(at),
      "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3]), "r"(d[4]), "r"(d[5]), "r"(d[6]), "r"(d[7]), "r"(d[8]), "r"(d[9]), "r"(d[10]),
      "r"(d[11]), "r"(d[12]), "r"(d[13]), "r"(d[14]), "r"(d[15])
      : "memory");
}

__device__ __forceinline__ void load_results(R_D (&d)[D_REGS], u32 at) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];\n"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]), "=r"(d[6]), "=r"(d[7]), "=r"(d[8]), "=r"(d[9]),
        "=r"(d[10]), "=r"(d[11]), "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15])
      : "r"(at)
      : "memory");
}

#if SCALE_BLOCK
// The scales of one row or column for one instruction, the first in the lowest byte.
__device__ __forceinline__ u32 scales_of(const u8 *p, i64 k_step, i64 k, i64 stop) {
  u32 word = 0;
#pragma unroll
  for (int i = 0; i < K / SCALE_BLOCK; i++) {
    const i64 at = k / SCALE_BLOCK + i;
    if (at * SCALE_BLOCK < stop) word |= (u32)p[at * k_step] << 8 * i;
  }
  return word;
}

// Cell (lane, column) holds the scales of row 32 column + lane; every warp writes its own quarter of the lanes alike.
__device__ __forceinline__ void store_scales(const Product &p, const Tile &t, u32 at, int lane, i64 k, i64 stop) {
  u32 a[4], b = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const i64 row = t.row + 32 * i + lane;
    a[i] = t.valid && row < p.m ? scales_of(p.scale_a + t.batch * p.sa_batch + row * p.sa_row, p.sa_k, k, stop) : 0;
  }
  const i64 column = t.column + lane;
  if (t.valid && lane < N && column < p.n) b = scales_of(p.scale_b + t.batch * p.sb_batch + column * p.sb_column, p.sb_k, k, stop);
  asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + SCALES_A), "r"(a[0]), "r"(a[1]), "r"(a[2]),
               "r"(a[3])
               : "memory");
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};\ntcgen05.wait::st.sync.aligned;" ::"r"(at + SCALES_B), "r"(b) : "memory");
}
#endif

extern "C" __global__ void __launch_bounds__(128) product(const __grid_constant__ Product p) {
  __shared__ __align__(128) u8 a[M * 32];
  __shared__ __align__(128) u8 b[N * 32];
  __shared__ __align__(8) u64 finished;
  __shared__ u32 allocated;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 32;
  const u32 barrier = shared_address(&finished);
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&allocated)), "n"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  }
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  before_sync();
  __syncthreads();
  after_sync();
  const u32 tensor = allocated, mine = tensor + ((u32)warp_row << 16);
  u32 parity = 0;
  const i64 tiles = (p.n + N - 1) / N * ((p.m + M - 1) / M) * p.batch;
  for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile t = tile_number(p, index);
    compute(p, t, lane, warp_row, [&](R_D (&d)[D_REGS], i64 start, i64 stop) {
      store_results(mine, d);
      for (i64 k = start; k < stop; k += K) {
        for (int i = threadIdx.x; i < 2 * M; i += 128)
          put(a, i / 2, i % 2, A_BITS, [&](int e) { return a_code(p, t, i / 2, k + i % 2 * (K / 2) + e, stop); });
        for (int i = threadIdx.x; i < 2 * N; i += 128)
          put(b, i / 2, i % 2, B_BITS, [&](int e) { return b_code(p, t, k + i % 2 * (K / 2) + e, i / 2, stop); });
#if SCALE_BLOCK
        store_scales(p, t, mine, lane, k, stop);
#endif
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        before_sync();
        __syncthreads();
        if (threadIdx.x == 0) {
          after_sync();
#if SCALE_BLOCK
          step(tensor, descriptor(a), descriptor(b), tensor + SCALES_A, tensor + SCALES_B);
#else
          step(tensor, descriptor(a), descriptor(b));
#endif
          asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
        }
        wait_for(barrier, parity);
        parity ^= 1;
        after_sync();
      }
      load_results(d, mine);
      before_sync();
      __syncthreads();
      after_sync();
    });
  }
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tensor), "n"(COLUMNS));
}
