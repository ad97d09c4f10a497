// An operand as the copy engine wants it: rows of k codes, k contiguous, code i of a row taken from place order[i] along k, or
// zero where that is -1. One thread block brings 64 rows of 128 codes through shared memory, along whichever axis is contiguous.
//
// The host defines CODE, the unsigned integer of a code.

typedef long long i64;

struct Arrange {
  const CODE *from;
  CODE *to;
  const int *order;
  i64 row_step, k_step, rows, k;  // steps in codes; k of the result
};

extern "C" __global__ void __launch_bounds__(256) arrange(const __grid_constant__ Arrange p) {
  __shared__ CODE tile[64][132];
  const i64 k0 = (i64)blockIdx.x * 128, row0 = (i64)blockIdx.y * 64;
  for (int i = threadIdx.x; i < 64 * 128; i += 256) {
    const int r = p.row_step == 1 ? i % 64 : i / 128, j = p.row_step == 1 ? i / 64 : i % 128;
    const int k = k0 + j < p.k ? p.order[k0 + j] : -1;
    tile[r][j] = k >= 0 && row0 + r < p.rows ? p.from[(row0 + r) * p.row_step + k * p.k_step] : 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 32; i += 256) {
    const int r = i / 32, j = i % 32 * 4;
    if (row0 + r >= p.rows) continue;
#pragma unroll
    for (int x = 0; x < 4; x++)
      if (k0 + j + x < p.k) p.to[(row0 + r) * p.k + k0 + j + x] = tile[r][j + x];
  }
}
