// The blocks of every kind of unit: terms, and c, become one result.

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
  return flushed_operand(v, Unit::ARITHMETIC() == 4 ? O::EMIN() : F::EMIN());
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

DEV Value not_a_number(u64 code) {
  Value v = special_value(NOT_A_NUMBER, 0);
  v.significand = code;
  return v;
}

// The sum rounded to nearest-even; where results are flushed, as if exponents had no limit, and then +0 below the normal numbers.
DEV Value round_paired(const Wide &sum) {
  if (Unit::FLUSH_RESULTS() && !is_zero(sum)) {
    Wide magnitude = sum;
    const int negative = is_negative(sum), bits = Unit::KEPT() + 1;
    if (negative) negate(magnitude);
    const int e = top_bit(magnitude) + LOW;
    if (e < O::EMIN()) {
      const u64 ones = (1ull << bits) - 1;
      if (e < O::EMIN() - 1 || (bits_from(magnitude, e - Unit::KEPT() - LOW) & ones) != ones) return zero_value(O::EMIN(), 0);
      Value v = {1, O::EMIN(), O::EMIN(), (u8)negative, FINITE, 0};
      return v;
    }
  }
  return to_output(sum, 0, RNE, 0);
}

// RDNA: products and c on one grid, floored (products of a pair among themselves first) or in one's complement.
DEV Value paired_block(const Operands &x, const Block &ks, const Value &c) {
  Specials s = {0, 0, 0};
  int factor = 0, top = NO_EXPONENT;
  for (int i = 0; i < ks.count; i++) {
    const i64 k = ks.k(i);
    const Value a = operand<SA, A>(load_code(x.a, k * x.a_step, SA::BYTES()));
    const Value b = operand<SB, B>(load_code(x.b, k * x.b_step, SB::BYTES()));
    const Value p = product(a, b);
    factor |= a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER;
    note(s, p);
    if (!p.zero && !p.kind && p.exponent > top) top = p.exponent;
  }
  if (factor) return not_a_number(Unit::FACTOR_NAN());
  if (s.nan || (s.plus && s.minus)) return not_a_number(Unit::NAN_CODE());
  if (c.kind == NOT_A_NUMBER) return not_a_number((u64)c.significand | 1ull << (O::MB() - 1 + O::PAD()));
  note(s, c);
  if (s.plus && s.minus) return not_a_number(Unit::NAN_CODE());
  if (any(s)) return special_sum(s);
  if (top == NO_EXPONENT && !c.significand) return zero_value(O::EMIN(), 0);
  const int leading = c.significand ? top_bit(c.significand) + c.lsb : NO_EXPONENT, f = Unit::FRACTION_BITS();
  int e = leading;
  if (Unit::HAS_MIN_EXPONENT() && e < Unit::MIN_EXPONENT()) e = Unit::MIN_EXPONENT();
  int grid = top == NO_EXPONENT ? NO_EXPONENT : top - f;
  if (e != NO_EXPONENT && e - Unit::LATE_FRACTION_BITS() > grid) grid = e - Unit::LATE_FRACTION_BITS();
  Wide sum;
  clear(sum);
  if (Unit::TERM_CUT() == 2) {
    for (int i = 0; i <= ks.count; i++) {
      Value t = i == ks.count ? c : plain_product(x, ks.k(i));
      const int against = t.negative != c.negative;
      t.negative = against;
      add_aligned(sum, t, grid, RZ, 0);
      if (against) add(sum, (u128)1, grid, 1);
    }
    if (c.negative) negate(sum);
    return round_paired(sum);
  }
  for (int i = 0; i < ks.count; i += Unit::TERM_CUT() == 1 ? 2 : 1) {
    const Value p = plain_product(x, ks.k(i));
    if (Unit::TERM_CUT() == 0) {
      add_aligned(sum, p, grid, RD, 0);
      continue;
    }
    const Value q = i + 1 < ks.count ? plain_product(x, ks.k(i + 1)) : zero_value(0, 0);
    if (p.zero && q.zero) continue;
    const int place = (p.zero || (!q.zero && q.exponent > p.exponent) ? q.exponent : p.exponent) - f;
    Wide pair;
    clear(pair);
    add_aligned(pair, p, place, RD, 0);
    add_aligned(pair, q, place, RD, 0);
    floor_to(pair, grid);
    add(sum, pair);
  }
  const int lost = leading < grid && (!Unit::HAS_MIN_EXPONENT() || grid > Unit::MIN_EXPONENT());
  if (!lost) add_aligned(sum, c, grid, RD, 0);
  return round_paired(sum);
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
  if (Unit::ARITHMETIC() == 4) return paired_block(x, ks, c);
  const u32 random = draw(Unit::ROUNDING(), seed, element, step, 0);
  if (Unit::ARITHMETIC() == 1) return two_stage_block(x, ks, c, random);
  return aligned_block(x, ks, c, random, seed, element, step);
}
