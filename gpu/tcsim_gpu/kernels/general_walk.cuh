// The walk along k: blocks of general_blocks.cuh chained, a plan's segments added outside, and the kernel of one output a thread.

DEV Value add_outside(const Value &x, const Value &y, int sum_format) {
  if (Unit::ARITHMETIC() == 3) {
    u32 p = (u32)x.significand, q = (u32)y.significand;
    return int32_value((x.negative ? 0u - p : p) + (y.negative ? 0u - q : q));
  }
  if (sum_format == 16) return add_in<F16>(x, y, 11, RNE, 0);
  if (sum_format == 64) return add_in<F64>(x, y, 53, RNE, 0);
  if (sum_format == 32) return add_in<F32>(x, y, 24, RNE, 0);
  return add_in<O>(x, y, O::MB() + 1, RNE, 0);
}

// The NaN operand that a block of one product keeps: b's, then that of the sum so far, then a's.
DEV Value kept_nan(const Operands &x, i64 k, const Value &sum) {
  const u64 quiet = 1ull << (O::MB() - 1 + O::PAD());
  Value v = special_value(NOT_A_NUMBER, 0);
  v.significand = Unit::NAN_CODE();
  const u64 a = load_code(x.a, k * x.a_step, SA::BYTES()), b = load_code(x.b, k * x.b_step, SB::BYTES());
  if (decode<SB>(b, B::EMIN()).kind == NOT_A_NUMBER)
    v.significand = (Unit::SAME_B() ? b : Unit::CONVERTED_NAN()) | quiet;
  else if (sum.kind == NOT_A_NUMBER)
    v.significand = (u64)sum.significand | quiet;
  else if (decode<SA>(a, A::EMIN()).kind == NOT_A_NUMBER)
    v.significand = (Unit::SAME_A() ? a : Unit::CONVERTED_NAN()) | quiet;
  return v;
}

// A result rounded to the output, as a value of the format that sums are kept in.
DEV Value narrowed(const Value &v) {
  if (v.kind) return v;
  Wide sum;
  clear(sum);
  add(sum, v.significand, v.lsb, v.negative);
  Value r = round_wide<R>(sum, v.negative, R::MB() + 1, RNE, 0);
  if (r.zero) r.negative = v.negative;
  r = flushed_result(r, R::EMIN());
  return decode<R>(encode_exact<R>(r, 0), O::EMIN());
}

DEV Value chain(const Operands &x, Value result, i64 start, i64 stop, u64 seed, u64 element, u32 &step) {
  result = flushed_operand(result, O::EMIN());
  for (i64 base = start; base < stop; base += Unit::PERIOD()) {
    Value partial = Unit::LATE() ? zero_value(O::EMIN(), Unit::LATE_NEGATIVE()) : result;
    for (int at = 0; at < Unit::PERIOD(); at += Unit::BLOCK()) {
      Block ks = {base, stop, at, 0};
      if (Unit::ORDERED())
        for (int i = 0; i < Unit::BLOCK(); i++) ks.count += base + k_order(at + i) < stop;
      else
        ks.count = (int)(stop - base - at < Unit::BLOCK() ? stop - base - at : Unit::BLOCK());
      if (ks.count <= 0) continue;
      const Value before = partial;
      partial = block(x, ks, before, seed, element, step++);
      if (Unit::KEEPS_NAN() && Unit::ARITHMETIC() != 4 && partial.kind == NOT_A_NUMBER) partial = kept_nan(x, ks.k(0), before);
    }
    result = Unit::LATE() ? flushed_result(add_outside(result, partial, 0), O::EMIN()) : partial;
    if (Unit::NARROWS() && ((base - start) / Unit::PERIOD() % Unit::CHAINS() == Unit::CHAINS() - 1 || base + Unit::PERIOD() >= stop))
      result = narrowed(result);
  }
  return result;
}

DEV u64 encode(const Value &v, u64 nan_code) {
  if (R::INTEGER()) return (v.negative ? 0ull - (u64)v.significand : (u64)v.significand) & (~0ull >> (64 - R::WIDTH()));
  return encode_exact<R>(v, nan_code);
}

struct Task {
  const u8 *a, *b, *c, *scale_a, *scale_b;
  void *d;
  const i64 *bounds;  // segments
  const i64 *list;    // outputs to compute, null for all
  i64 a_batch, a_row, a_k, b_batch, b_k, b_column;
  i64 sa_batch, sa_row, sa_k, sb_batch, sb_k, sb_column;
  i64 batch, m, n, count;
  u64 seed;
  int segments, sum_format, c_first;  // sum_format 0: one chain from c
};

DEV void one_output(const Task &t, i64 index) {
  const i64 element = t.list ? t.list[index] : index;
  const i64 j = element % t.n, i = element / t.n % t.m, z = element / t.n / t.m;
  Operands x;
  x.a = t.a + z * t.a_batch + i * t.a_row;
  x.b = t.b + z * t.b_batch + j * t.b_column;
  x.a_step = t.a_k;
  x.b_step = t.b_k;
  x.scale_a = t.scale_a + z * t.sa_batch + i * t.sa_row;
  x.scale_b = t.scale_b + z * t.sb_batch + j * t.sb_column;
  x.sa_step = t.sa_k;
  x.sb_step = t.sb_k;
  u32 step = 0;
  const Value nothing = zero_value(O::EMIN(), 0);
  Value c = t.c ? decode<R>(load_code(t.c, element * R::BYTES(), R::BYTES()), O::EMIN()) : nothing;
  if (Unit::KEEPS_NAN() && c.kind == NOT_A_NUMBER) c.significand = load_code(t.c, element * O::BYTES(), O::BYTES());
  Value total = c;
  u64 nan_code = Unit::NAN_CODE();
  if (t.sum_format == 0) {
    total = chain(x, c, t.bounds[0], t.bounds[1], t.seed, element, step);
    if (Unit::KEEPS_NAN() && t.bounds[1] > t.bounds[0]) nan_code = (u64)total.significand;
  } else {
    if (!t.c_first) total = nothing;
    for (int s = 0; s < t.segments; s++)
      total = add_outside(total, chain(x, nothing, t.bounds[s], t.bounds[s + 1], t.seed, element, step), t.sum_format);
    if (t.c && !t.c_first) total = add_outside(total, c, t.sum_format);
    if (Unit::ARITHMETIC() != 3 && !total.kind) {
      Wide sum;
      clear(sum);
      add(sum, total.significand, total.lsb, total.negative);
      const int negative = total.negative;
      total = round_wide<R>(sum, negative, R::MB() + 1, RNE, 0);
      if (total.zero) total.negative = negative;
      total = flushed_result(total, R::EMIN());
    }
  }
  store_code(t.d, element, R::BYTES(), encode(total, nan_code));
}

#ifdef __CUDACC__
extern "C" __global__ void general(const Task t) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < t.count; i += (i64)gridDim.x * blockDim.x) one_output(t, i);
}
#else
extern "C" void general(const Task *t) {
  for (i64 i = 0; i < t->count; i++) one_output(*t, i);
}
#endif
