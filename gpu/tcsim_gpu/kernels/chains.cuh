// Units that are one fused multiply-add a product in ascending k (FP64, FP32), and integer dot products that wrap.
// The host defines REAL (double, float or unsigned), A B O and the stored formats SA SB.

struct Chain {
  const u8 *a, *b, *c;
  void *d;
  i64 a_batch, a_row, a_k, b_batch, b_k, b_column, batch, m, n, k;
};

// Float in PTX: CuPy compiles with -ftz=true, which would lose its subnormals.
DEV double fused(double x, double y, double z) { return fma(x, y, z); }

DEV float fused(float x, float y, float z) {
  asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(z) : "f"(x), "f"(y));
  return z;
}

DEV void narrow(double x, double &to) { to = x; }
DEV void narrow(double x, float &to) { asm("cvt.rn.f32.f64 %0, %1;" : "=f"(to) : "d"(x)); }
DEV u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
DEV u64 bits_of(float x) { return (u64)__float_as_uint(x); }

DEV REAL number(const Value &v) {
#if INTEGERS
  return v.negative ? 0u - (u32)v.significand : (u32)v.significand;
#else
  const double magnitude = v.kind == NOT_A_NUMBER ? __longlong_as_double(0x7FF8000000000000ll)
                           : v.kind == INFINITE   ? __longlong_as_double(0x7FF0000000000000ll)
                                                  : scalbn((double)(u64)v.significand, v.lsb);
  REAL x;
  narrow(v.negative ? -magnitude : magnitude, x);
  return x;
#endif
}

#if !INTEGERS
DEV u64 code_of(REAL x) {
  const u64 bits = bits_of(x), sign = 1ull << (8 * sizeof(REAL) - 1);
  return bits == sign && !Unit::SIGNED_ZERO() ? 0 : bits;
}
#endif

#if !INTEGERS
// The code of a NaN result: the operand's that the unit keeps, found by walking the chain again.
DEV u64 nan_of(const Chain &t, i64 z, i64 r, i64 s) {
  if (!Unit::KEEPS_NAN() || !t.k) return Unit::NAN_CODE();
  const u64 quiet = 1ull << (O::MB() - 1 + O::PAD());
  u64 kept = t.c ? load_code(t.c, ((z * t.m + r) * t.n + s) * O::BYTES(), O::BYTES()) : 0;
  REAL sum = number(decode<O>(kept, O::EMIN()));
  for (i64 k = 0; k < t.k; k++) {
    const u64 a = load_code(t.a, z * t.a_batch + r * t.a_row + k * t.a_k, SA::BYTES());
    const u64 b = load_code(t.b, z * t.b_batch + k * t.b_k + s * t.b_column, SB::BYTES());
    const REAL x = number(decode<SA>(a, A::EMIN())), y = number(decode<SB>(b, B::EMIN())), next = fused(x, y, sum);
    if (y != y)
      kept = Unit::SAME_B() ? b : Unit::CONVERTED_NAN();
    else if (sum == sum)
      kept = x != x ? (Unit::SAME_A() ? a : Unit::CONVERTED_NAN()) : Unit::NAN_CODE();
    kept |= quiet;
    sum = next;
  }
  return kept;
}
#endif

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
      acc[i][j] = t.c && r < t.m && s < t.n ? number(decode<O>(load_code(t.c, ((z * t.m + r) * t.n + s) * O::BYTES(), O::BYTES()), O::EMIN())) : 0;
    }
  for (i64 k0 = 0; k0 < t.k; k0 += 16) {
    const int count = (int)min((i64)16, t.k - k0);
    for (int i = threadIdx.x; i < 1024; i += 256) {
      const int ka = i % 16, ra = i / 16, kb = i / 64, cb = i % 64;
      const bool in_a = ka < count && row0 + ra < t.m, in_b = kb < count && column0 + cb < t.n;
      sa[ka][ra] = in_a ? number(decode<SA>(load_code(t.a, z * t.a_batch + (row0 + ra) * t.a_row + (k0 + ka) * t.a_k, SA::BYTES()), A::EMIN())) : 0;
      sb[kb][cb] = in_b ? number(decode<SB>(load_code(t.b, z * t.b_batch + (k0 + kb) * t.b_k + (column0 + cb) * t.b_column, SB::BYTES()), B::EMIN())) : 0;
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
          acc[i][j] = fused(sa[k][ty + 16 * i], sb[k][tx + 16 * j], acc[i][j]);
#endif
        }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 r = row0 + ty + 16 * i, s = column0 + tx + 16 * j;
      if (r >= t.m || s >= t.n) continue;
#if INTEGERS
      const u64 code = acc[i][j];
#else
      const u64 code = acc[i][j] == acc[i][j] ? code_of(acc[i][j]) : nan_of(t, z, r, s);
#endif
      store_code(t.d, (z * t.m + r) * t.n + s, O::BYTES(), code);
    }
}
