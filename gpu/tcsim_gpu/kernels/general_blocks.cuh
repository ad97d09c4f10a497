// The blocks of every kind of unit, and the walk along k.

#define NO_EXPONENT (-(1 << 30))  // of a block of zeros
#define TREE_LEVELS 22            // of a block of up to 2^20 products, and one for c

struct Operands {
  const u8 *a, *b, *scale_a, *scale_b;  // at the row of a, the column of b, and their scales
  i64 a_step, b_step;                   // bytes between neighbours along k
  i64 sa_step, sb_step;
};

// A code of the stored format as a value of the unit's format F, which holds it: the bits that F lacks are zero, but where
// the code is a subnormal of the stored format and no longer one of F.
template <class Stored, class F> DEV Value operand(u64 code) {
  Value v = decode<Stored>(code, F::EMIN());
  if (Stored::MB() > F::MB())
    for (int i = Stored::MB() - F::MB(); i > 0 && v.significand && !(v.significand & 1); i--) {
      v.significand >>= 1;
      v.lsb++;
    }
  return flushed_operand(v, F::EMIN());
}

DEV Value plain_product(const Operands &x, i64 k) {
  return product(operand<SA, A>(load_code(x.a, k * x.a_step, SA::BYTES())), operand<SB, B>(load_code(x.b, k * x.b_step, SB::BYTES())));
}

DEV Value scale_product(const Operands &x, i64 k) {
  const i64 i = k / Unit::SCALE_BLOCK();
  return product(decode<S>(load_code(x.scale_a, i * x.sa_step, S::BYTES()), S::EMIN()),
                 decode<S>(load_code(x.scale_b, i * x.sb_step, S::BYTES()), S::EMIN()));
}

// The i-th product of a block, which has `count`: those of a short one are the ones before `stop`, in the unit's order.
struct Block {
  i64 base, stop;
  int at, count;

  MEMBER i64 k(int i) const {
    if (!Unit::ORDERED() || count == Unit::BLOCK()) return base + k_order(at + i);
    for (int j = at;; j++)
      if (base + k_order(j) < stop && !i--) return base + k_order(j);
  }
};

// A product, scaled where the unit has scales.
DEV Value term(const Operands &x, const Block &ks, int i) {
  const i64 k = ks.k(i);
  return Unit::SCALED() ? product(plain_product(x, k), scale_product(x, k)) : plain_product(x, k);
}

// Products [first, first + count) of a block added exactly, times their scales: `magnitude` with the sign, kind and exponent
// of the result, which is that of the scales alone.
DEV Value group_term(const Operands &x, const Block &ks, int first, int count, Wide &magnitude) {
  Value scale = scale_product(x, ks.k(first));
  Specials s = {0, 0, 0};
  clear(magnitude);
  int all_zero = 1, all_negative = 1;
  for (int i = first; i < first + count; i++) {
    Value p = plain_product(x, ks.k(i));
    note(s, p);
    all_zero &= p.zero;
    all_negative &= p.negative;
    if (!p.kind) add(magnitude, p.significand, p.lsb, p.negative);
  }
  Value total = any(s) ? special_sum(s) : zero_value(0, is_negative(magnitude));
  if (!total.kind) total.zero = is_zero(magnitude);
  Value v = product(total, scale);
  v.exponent = scale.exponent;
  if (v.kind) return v;
  v.zero = scale.zero || all_zero;
  if (v.zero) v.negative = all_negative;
  if (is_negative(magnitude)) negate(magnitude);
  multiply(magnitude, scale.significand);
  shift(magnitude, scale.lsb);
  return v;
}

DEV u32 draw(int mode, u64 seed, u64 element, u32 step, u32 operation) {
  return mode == SR ? random_word(seed, element, step, operation) : 0;
}

// The random word that cuts a term: operation 0 is the block's rounding, 1 is c, 2 + i the product or group i.
DEV Value aligned_block(const Operands &x, const Block &ks, const Value &c, u32 random, u64 seed, u64 element, u32 step) {
  Specials s = {0, 0, 0};
  note(s, c);
  int emax = NO_EXPONENT, any_zero = c.zero, negative = c.negative && !c.significand;
  if (!c.zero && !c.kind) emax = c.exponent;
  const int groups = Unit::GROUP() > 1;
  for (int i = 0; i < ks.count; i += Unit::GROUP()) {
    Value t;
    if (groups) {
      Wide magnitude;
      t = group_term(x, ks, i, min_of(ks.count - i, Unit::GROUP()), magnitude);
    } else {
      t = term(x, ks, i);
    }
    note(s, t);
    any_zero |= t.zero;
    negative &= t.zero && t.negative;
    if (!t.zero && !t.kind && t.exponent > emax) emax = t.exponent;
  }
  if (any(s)) return special_sum(s);
  if (any_zero && Unit::HAS_MIN_EXPONENT() && emax < Unit::MIN_EXPONENT()) emax = Unit::MIN_EXPONENT();
  const int quantum = emax == NO_EXPONENT ? NO_EXPONENT : emax - Unit::FRACTION_BITS();
  Wide sum;
  clear(sum);
  add_aligned(sum, c, quantum, Unit::ALIGN(), draw(Unit::ALIGN(), seed, element, step, 1));
  for (int i = 0; i < ks.count; i += Unit::GROUP()) {
    const u32 word = draw(Unit::ALIGN(), seed, element, step, 2 + i / Unit::GROUP());
    if (groups) {
      Wide magnitude;
      const Value t = group_term(x, ks, i, min_of(ks.count - i, Unit::GROUP()), magnitude);
      add_aligned(sum, magnitude, t.negative, quantum, Unit::ALIGN(), word);
    } else {
      add_aligned(sum, term(x, ks, i), quantum, Unit::ALIGN(), word);
    }
  }
  return to_output(sum, negative, Unit::ROUNDING(), random);
}

// CDNA3: products aligned among themselves, their sum and c floored against each other, one rounding.
DEV Value two_stage_block(const Operands &x, const Block &ks, Value c, u32 random) {
  Specials s = {0, 0, 0};
  note(s, c);
  const int groups = Unit::PARITY_SPLIT() ? 2 : 1;
  int exponent[2] = {-9999, -9999};
  int negative = c.zero && c.negative;
  for (int i = 0; i < ks.count; i++) {
    Value p = plain_product(x, ks.k(i));
    if (!p.kind && p.significand && top_bit(p.significand) + p.lsb >= O::EMAX() + 1) p = special_value(INFINITE, p.negative);
    note(s, p);
    negative &= p.zero && p.negative;
    int g = groups == 2 ? i & 1 : 0;
    if (!p.zero && !p.kind && p.exponent > exponent[g]) exponent[g] = p.exponent;
  }
  if (any(s)) return special_sum(s);
  const int f = Unit::FRACTION_BITS(), late = Unit::LATE_FRACTION_BITS();
  const int largest = exponent[1] > exponent[0] ? exponent[1] : exponent[0];
  const int emax = c.exponent > largest ? c.exponent : largest;
  Wide total;
  clear(total);
  for (int g = 0; g < groups; g++) {
    Wide sum;
    clear(sum);
    for (int i = g; i < ks.count; i += groups) add_aligned(sum, plain_product(x, ks.k(i)), exponent[g] - f, RZ, 0);
    if (groups == 2) floor_to(sum, largest - f);
    add(total, sum);
  }
  if (groups == 2 && c.exponent < emax - f - 1) c = zero_value(c.exponent, 0);
  floor_to(total, emax - late - 1);
  Wide cw;
  clear(cw);
  add(cw, c.significand, c.lsb, c.negative);
  floor_to(cw, emax - f);
  add(total, cw);
  Wide magnitude = total;
  const int below = is_negative(total);
  if (below) negate(magnitude);
  int e = is_zero(magnitude) ? O::EMIN() : top_bit(magnitude) + LOW;
  if (e < O::EMIN()) e = O::EMIN();
  floor_to(total, e - late);
  return to_output(total, negative || below, Unit::ROUNDING(), random);
}

DEV Value add_unit(const Value &x, const Value &y, u64 seed, u64 element, u32 step, u32 operation) {
  Specials s = {0, 0, 0};
  note(s, x);
  note(s, y);
  if (any(s)) return special_sum(s);
  Wide sum;
  clear(sum);
  add(sum, x.significand, x.lsb, x.negative);
  add(sum, y.significand, y.lsb, y.negative);
  return to_output(sum, x.negative && y.negative && !x.significand && !y.significand, Unit::ROUNDING(),
                   draw(Unit::ROUNDING(), seed, element, step, operation));
}

// Every product and every addition rounded: a balanced tree of the products, then c. Subtrees of 2^level products wait on a
// stack until their neighbour is done; additions are counted level by level, an odd one out going up a level as it is.
DEV Value rounded_block(const Operands &x, const Block &ks, const Value &c, u64 seed, u64 element, u32 step) {
  Value waiting[TREE_LEVELS];
  int level[TREE_LEVELS], first[TREE_LEVELS], waits = 0;
  u32 operations[TREE_LEVELS];  // additions before those of a level
  for (int l = 0, n = ks.count, before = ks.count; l < TREE_LEVELS; l++) {
    operations[l] = before;
    before += n / 2;
    n = (n + 1) / 2;
  }
  for (int i = 0; i < ks.count; i++) {
    Value p = plain_product(x, ks.k(i));
    if (!p.kind) {
      Wide sum;
      clear(sum);
      add(sum, p.significand, p.lsb, p.negative);
      p = to_output(sum, p.negative, Unit::PRODUCT_ROUNDING(), draw(Unit::PRODUCT_ROUNDING(), seed, element, step, i));
    }
    waiting[waits] = p;
    level[waits] = 0;
    first[waits++] = i;
    while (waits > 1 && (level[waits - 2] == level[waits - 1] || i + 1 == ks.count)) {
      const int left = waits - 2, l = level[left];
      waiting[left] = add_unit(waiting[left], waiting[waits - 1], seed, element, step, operations[l] + (first[left] >> (l + 1)));
      level[left]++;
      waits--;
    }
  }
  return add_unit(waiting[0], c, seed, element, step, 2 * ks.count - 1);
}

DEV Value int32_value(u32 bits) {
  Value v = {};
  v.negative = bits >> 31;
  v.significand = v.negative ? 0u - bits : bits;
  v.zero = bits == 0;
  return v;
}

DEV Value integer_block(const Operands &x, const Block &ks, const Value &c) {
  if (Unit::SATURATES()) {
    i64 sum = c.negative ? -(i64)c.significand : (i64)c.significand;
    for (int i = 0; i < ks.count; i++) {
      Value p = plain_product(x, ks.k(i));
      sum += p.negative ? -(i64)p.significand : (i64)p.significand;
    }
    const i64 largest = 0x7FFFFFFF;
    return int32_value((u32)(sum > largest ? largest : sum < -largest - 1 ? -largest - 1 : sum));
  }
  u32 total = (u32)c.significand;
  if (c.negative) total = 0u - total;
  for (int i = 0; i < ks.count; i++) {
    Value p = plain_product(x, ks.k(i));
    total += p.negative ? 0u - (u32)p.significand : (u32)p.significand;
  }
  return int32_value(total);
}

DEV Value block(const Operands &x, const Block &ks, const Value &c, u64 seed, u64 element, u32 step) {
  if (Unit::ARITHMETIC() == 3) return integer_block(x, ks, c);
  if (Unit::ARITHMETIC() == 2) return rounded_block(x, ks, c, seed, element, step);
  const u32 random = draw(Unit::ROUNDING(), seed, element, step, 0);
  if (Unit::ARITHMETIC() == 1) return two_stage_block(x, ks, c, random);
  return aligned_block(x, ks, c, random, seed, element, step);
}

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
      if (Unit::KEEPS_NAN() && partial.kind == NOT_A_NUMBER) partial = kept_nan(x, ks.k(0), before);
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
