// wgmma: one warpgroup, operands in shared memory without swizzle, k contiguous. Core matrices of 8 rows by 16 bytes are
// contiguous; an instruction takes 32 bytes of k, so two of them along k (leading offset 128), 256 bytes from one eight
// rows to the next (stride offset).

__device__ __forceinline__ u64 descriptor(const void *p) {
  const u64 at = (u64)__cvta_generic_to_shared(p);
  return (at & 0x3FFFF) >> 4 | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}

__device__ __forceinline__ void put(u8 *tile, int row, int k, int bytes, u64 code) {
  const int byte = k * bytes;
  u8 *at = tile + row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
  if (bytes == 1) *at = (u8)code;
  if (bytes == 2) *(u16 *)at = (u16)code;
  if (bytes == 4) *(u32 *)at = (u32)code;
}

extern "C" __global__ void __launch_bounds__(128) product(const __grid_constant__ Product p) {
  __shared__ __align__(128) u8 a[64 * 32];
  __shared__ __align__(128) u8 b[8 * 32];
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const i64 tiles = (p.n + N - 1) / N * ((p.m + M - 1) / M) * p.batch;
  for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile t = tile_number(p, index);
    compute(p, t, lane, warp_row, [&](R_D (&d)[D_REGS], i64 start, i64 stop) {
      for (i64 k = start; k < stop; k += K) {
        for (int i = threadIdx.x; i < 64 * K; i += 128) put(a, i / K, i % K, A_BYTES, a_code(p, t, i / K, k + i % K, stop));
        for (int i = threadIdx.x; i < 8 * K; i += 128) put(b, i % 8, i / 8, B_BYTES, b_code(p, t, k + i / 8, i % 8, stop));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        step(d, descriptor(a), descriptor(b));
        __syncthreads();
      }
    });
  }
}
