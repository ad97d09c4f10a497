// mma.sp: a warp a tile of 16 x 8 results, its registers laid out by the host, `steps` instructions along k.
//
// The host defines A_REGS B_REGS D_REGS and step(d, a, b, metadata).

typedef unsigned int u32;

extern "C" __global__ void product(const u32 *a, const u32 *b, const u32 *metadata, const u32 *c, u32 *d, int steps) {
  const long long lane = threadIdx.x, row = blockIdx.x, column = blockIdx.y, tile = row * gridDim.y + column;
  u32 x[A_REGS], y[B_REGS], z[D_REGS];
#pragma unroll
  for (int i = 0; i < D_REGS; i++) z[i] = c[(tile * D_REGS + i) * 32 + lane];
  for (int s = 0; s < steps; s++) {
#pragma unroll
    for (int i = 0; i < A_REGS; i++) x[i] = a[((row * steps + s) * A_REGS + i) * 32 + lane];
#pragma unroll
    for (int i = 0; i < B_REGS; i++) y[i] = b[((column * steps + s) * B_REGS + i) * 32 + lane];
    step(z, x, y, metadata[(row * steps + s) * 32 + lane]);
  }
#pragma unroll
  for (int i = 0; i < D_REGS; i++) d[(tile * D_REGS + i) * 32 + lane] = z[i];
}
