// mma.sync: registers of a lane as the PTX ISA's fragment tables have them. E elements of BITS bits along k in a register.

#define E (REG_BITS / BITS)

__device__ __forceinline__ R_AB pack_register(const u64 (&codes)[E]) {
#if REG_BITS == 64
  return __longlong_as_double((i64)codes[0]);
#else
  u32 r = 0;
#pragma unroll
  for (int e = 0; e < E; e++) r |= (u32)codes[e] << (BITS * e);
  return r;
#endif
}

extern "C" __global__ void product(const __grid_constant__ Product p) {
  const int lane = threadIdx.x % 32, warp_row = 0;
  const i64 across = (p.n + N - 1) / N, down = (p.m + M - 1) / M, tiles = across * down * p.batch, warps = (i64)gridDim.x * blockDim.x / 32;
  for (i64 index = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32; index < tiles; index += warps) {
    const Tile t = tile_number(p, index);
    compute(p, t, lane, warp_row, [&](R_D (&d)[D_REGS], i64 start, i64 stop) {
      for (i64 k = start; k < stop; k += K) {
        R_AB a[A_REGS], b[B_REGS];
#pragma unroll
        for (int r = 0; r < A_REGS; r++) {
          u64 codes[E];
#pragma unroll
          for (int e = 0; e < E; e++) {
#if VOLTA
            codes[e] = a_code(p, t, lane % 4 + (lane >= 16 ? 4 : 0), k + r * E + e, stop);
#else
            codes[e] = a_code(p, t, lane / 4 + 8 * (r % (M / 8)), k + lane % 4 * E + r / (M / 8) * 4 * E + e, stop);
#endif
          }
          a[r] = pack_register(codes);
        }
#pragma unroll
        for (int r = 0; r < B_REGS; r++) {
          u64 codes[E];
#pragma unroll
          for (int e = 0; e < E; e++) {
#if VOLTA
            codes[e] = b_code(p, t, k + r * E + e, lane % 4 + (lane >= 16 ? 4 : 0), stop);
#else
            codes[e] = b_code(p, t, k + lane % 4 * E + r * 4 * E + e, lane / 4, stop);
#endif
          }
          b[r] = pack_register(codes);
        }
#if SCALE_BLOCK
        // rows: lanes 0 and 1 of a quad hold the scales of rows g and g + 8; columns: lane 0 holds those of column g
        u32 sa = 0, sb = 0;
#pragma unroll
        for (int i = 0; i < K / SCALE_BLOCK; i++) {
          const i64 at = k / SCALE_BLOCK + i;
          const int row = lane / 4 + 8 * (lane & 1), column = lane / 4;
          const bool more = t.valid && at * SCALE_BLOCK < stop;
          if (more && t.row + row < p.m) sa |= (u32)p.scale_a[t.batch * p.sa_batch + (t.row + row) * p.sa_row + at * p.sa_k] << 8 * i;
          if (more && t.column + column < p.n) sb |= (u32)p.scale_b[t.batch * p.sb_batch + at * p.sb_k + (t.column + column) * p.sb_column] << 8 * i;
        }
        step(d, a, b, sa, sb);
#else
        step(d, a, b);
#endif
      }
    });
  }
}
