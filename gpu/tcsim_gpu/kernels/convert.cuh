// Codes of the format STORED as codes of MINE: C-ordered output from a strided input; nothing is written where `to` is 0, and `lost` is set
// where MINE does not hold a value.

struct Conversion {
  const u8 *from;
  u8 *to;
  u32 *lost;
  i64 s0, s1, s2, n1, n2, count;
};

// Whether F has this value; of NaN any, of zeros either sign.
template <class F> DEV bool holds(const Value &v) {
  if (v.kind == NOT_A_NUMBER) return F::NAN_STYLE() != NAN_NONE;
  if (v.kind == FINITE && !v.significand) return F::ZERO();
  if (v.negative && !F::SIGNED()) return false;
  if (v.kind == INFINITE) return F::INF_CODE() != ~0ull;
  const int exponent = top_bit((u64)v.significand) + v.lsb, at = exponent > F::EMIN() ? exponent : F::EMIN();
  if (exponent > F::EMAX() || (exponent < F::EMIN() && !F::ZERO())) return false;
  const int shift = at - F::MB() - v.lsb;
  if (shift > 63 || (shift > 0 && (u64)v.significand << (64 - shift))) return false;
  return (encode_exact<F>(v, 0) & ~(F::SIGNED() ? 1ull << (F::WIDTH() - 1) : 0)) <= F::MAX_CODE();
}

extern "C" __global__ void convert(const __grid_constant__ Conversion p) {
  bool lost = false;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x) {
    const i64 at = i / p.n2 / p.n1 * p.s0 + i / p.n2 % p.n1 * p.s1 + i % p.n2 * p.s2;
    const Value v = decode<STORED>(load_code(p.from, at, STORED::BYTES()), MINE::EMIN());
    lost = lost || !holds<MINE>(v);
    if (p.to) store_code(p.to, i, MINE::BYTES(), encode_exact<MINE>(v, NAN_CODE_OF_MINE));
  }
  if (lost && p.lost) *p.lost = 1;
}
