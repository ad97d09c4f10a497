// Units that are one fused multiply-add a product in ascending k (FP64, FP32), and integer dot products that wrap.
// The host defines REAL (double, float or unsigned), A B O and the stored formats SA SB.

struct Chain {
  const u8 *a, *b, *c;
  void *d;
  i64 a_batch, a_row, a_k, b_batch, b_k, b_column, batch, m, n, k;
};

DEV REAL number(const Value &v) {
#if INTEGERS
  return v.negative ? 0u - (u32)v.significand : (u32)v.significand;
#else
  const double magnitude = v.kind == NOT_A_NUMBER ? __longlong_as_double(0x7FF8000000000000ll)
                           : v.kind == INFINITE   ? __longlong_as_double(0x7FF0000000000000ll)
                                                  : scalbn((double)(u64)v.significand, v.lsb);
  return (REAL)(v.negative ? -magnitude : magnitude);
#endif
}

DEV u64 code_of(REAL x) {
#if INTEGERS
  return x;
#else
  if (x != x) return Unit::NAN_CODE;
  if (x == 0 && !Unit::IEEE_ZERO) return 0;
  return sizeof(REAL) == 8 ? (u64)__double_as_longlong((double)x) : (u64)__float_as_uint((float)x);
#endif
}

extern "C" __global__ void __launch_bounds__(256) chains(const __grid_constant__ Chain t) {
  __shared__ REAL sa[16][65], sb[16][65];
  const i64 tiles_n = (t.n + 63) / 64, row0 = blockIdx.x / tiles_n * 64, column0 = blockIdx.x % tiles_n * 64, z = blockIdx.y + (i64)blockIdx.z * gridDim.y;
  if (z >= t.batch) return;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  REAL acc[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 r = row0 + ty + 16 * i, s = column0 + tx + 16 * j;
      acc[i][j] = t.c && r < t.m && s < t.n ? number(decode<O>(load_code(t.c, ((z * t.m + r) * t.n + s) * O::BYTES, O::BYTES), O::EMIN)) : 0;
    }
  for (i64 k0 = 0; k0 < t.k; k0 += 16) {
    const int count = (int)min((i64)16, t.k - k0);
    for (int i = threadIdx.x; i < 1024; i += 256) {
      const int ka = i % 16, ra = i / 16, kb = i / 64, cb = i % 64;
      const bool in_a = ka < count && row0 + ra < t.m, in_b = kb < count && column0 + cb < t.n;
      sa[ka][ra] = in_a ? number(decode<SA>(load_code(t.a, z * t.a_batch + (row0 + ra) * t.a_row + (k0 + ka) * t.a_k, SA::BYTES), A::EMIN)) : 0;
      sb[kb][cb] = in_b ? number(decode<SB>(load_code(t.b, z * t.b_batch + (k0 + kb) * t.b_k + (column0 + cb) * t.b_column, SB::BYTES), B::EMIN)) : 0;
    }
    __syncthreads();
    for (int k = 0; k < count; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
#if INTEGERS
          acc[i][j] += sa[k][ty + 16 * i] * sb[k][tx + 16 * j];
#else
          acc[i][j] = fma(sa[k][ty + 16 * i], sb[k][tx + 16 * j], acc[i][j]);
#endif
        }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 r = row0 + ty + 16 * i, s = column0 + tx + 16 * j;
      if (r < t.m && s < t.n) store_code(t.d, (z * t.m + r) * t.n + s, O::BYTES, code_of(acc[i][j]));
    }
}
