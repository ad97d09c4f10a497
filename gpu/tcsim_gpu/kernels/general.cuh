// Any unit, any what-if, exactly: sums in a fixed-point number wide enough for every bit that a block can have.
//
// The host defines Unit (numbers of the record), the formats A B O S and the stored formats SA SB: a Wide holds
// value = bits * 2^LOW in LIMBS words of two's complement, of MOST_LIMBS that there is room for. One thread computes one
// output, in the order the unit has.

#define LIMBS Unit::LIMB_COUNT()
#define LOW Unit::LOW_BIT()

struct Wide {
  u64 w[MOST_LIMBS];
};

DEV void clear(Wide &x) {
  for (int i = 0; i < LIMBS; i++) x.w[i] = 0;
}

DEV int is_negative(const Wide &x) { return (int)(x.w[LIMBS - 1] >> 63); }

DEV int is_zero(const Wide &x) {
  u64 any = 0;
  for (int i = 0; i < LIMBS; i++) any |= x.w[i];
  return any == 0;
}

DEV void negate(Wide &x) {
  u64 carry = 1;
  for (int i = 0; i < LIMBS; i++) {
    x.w[i] = ~x.w[i] + carry;
    carry = carry && x.w[i] == 0;
  }
}

// x += (-1)^negative * magnitude * 2^lsb; lsb >= LOW.
DEV void add(Wide &x, u128 magnitude, int lsb, int negative) {
  if (!magnitude) return;
  const int limb = (lsb - LOW) >> 6, shift = (lsb - LOW) & 63;
  const u64 low = (u64)magnitude, high = (u64)(magnitude >> 64);
  u64 part[3] = {low << shift, shift ? high << shift | low >> (64 - shift) : high, shift ? high >> (64 - shift) : 0};
  u64 carry = negative;
  for (int i = limb; i < LIMBS; i++) {
    u64 y = i - limb < 3 ? part[i - limb] : 0;
    if (negative) y = ~y;
    u64 s = x.w[i] + y, t = s + carry;
    carry = (s < y) | (t < s);
    x.w[i] = t;
  }
}

DEV void add(Wide &x, const Wide &y) {
  u64 carry = 0;
  for (int i = 0; i < LIMBS; i++) {
    u64 s = x.w[i] + y.w[i], t = s + carry;
    carry = (s < y.w[i]) | (t < s);
    x.w[i] = t;
  }
}

// x rounded down to a multiple of 2^quantum.
DEV void floor_to(Wide &x, int quantum) {
  for (int i = 0; i < LIMBS; i++) {
    int bits = quantum - LOW - 64 * i;
    if (bits >= 64) x.w[i] = 0;
    else if (bits > 0) x.w[i] &= ~0ull << bits;
  }
}

DEV int min_of(int x, int y) { return x < y ? x : y; }

// x *= m, for a non-negative x that has room.
DEV void multiply(Wide &x, u128 m) {
  const u64 low = (u64)m, high = (u64)(m >> 64);
  u64 before = 0;  // x's word before
  u128 carry = 0;
  for (int i = 0; i < LIMBS; i++) {
    const u64 w = x.w[i];
    const u128 p = (u128)w * low, q = (u128)before * high;
    const u128 s = carry + (u64)p, t = s + (u64)q;
    x.w[i] = (u64)t;
    carry = (t >> 64) + (p >> 64) + (q >> 64);
    before = w;
  }
}

// x *= 2^places; no bit leaves either end.
DEV void shift(Wide &x, int places) {
  if (places >= 0) {
    const int limbs = places >> 6, bits = places & 63;
    for (int i = LIMBS - 1; i >= 0; i--) {
      const u64 w = i >= limbs ? x.w[i - limbs] : 0, below = i > limbs ? x.w[i - limbs - 1] : 0;
      x.w[i] = bits ? w << bits | below >> (64 - bits) : w;
    }
  } else {
    const int limbs = -places >> 6, bits = -places & 63;
    for (int i = 0; i < LIMBS; i++) {
      const u64 w = i + limbs < LIMBS ? x.w[i + limbs] : 0, above = i + limbs + 1 < LIMBS ? x.w[i + limbs + 1] : 0;
      x.w[i] = bits ? w >> bits | above << (64 - bits) : w;
    }
  }
}

DEV int top_bit(const Wide &x) {
  for (int i = LIMBS - 1; i >= 0; i--)
    if (x.w[i]) return 64 * i + top_bit(x.w[i]);
  return -1;
}

// 64 bits of x from bit `from` up; bits outside x read as 0.
DEV u64 bits_from(const Wide &x, int from) {
  if (from <= -64 || from >= 64 * LIMBS) return 0;
  if (from < 0) return x.w[0] << -from;
  int i = from >> 6, shift = from & 63;
  u64 r = x.w[i] >> shift;
  if (shift && i + 1 < LIMBS) r |= x.w[i + 1] << (64 - shift);
  return r;
}

DEV int any_below(const Wide &x, int bit) {
  for (int i = 0; i < LIMBS && 64 * i < bit; i++) {
    int n = bit - 64 * i;
    if (n >= 64 ? x.w[i] != 0 : (x.w[i] & ((1ull << n) - 1)) != 0) return 1;
  }
  return 0;
}

// Whether a magnitude with the given last kept bit, first dropped bit, rest and fraction rounds up.
DEV int rounds_up(int mode, int odd, int half, int below, int negative, u64 fraction, u32 random) {
  switch (mode) { ROUNDS_UP_CASES }
  no_such_rounding();
  return 0;
}

DEV Value special_value(int kind, int negative) {
  Value v = {0, 0, 0, (u8)negative, (u8)kind, 0};
  return v;
}

DEV Value zero_value(int exponent, int negative) {
  Value v = {0, 0, exponent, (u8)negative, FINITE, 1};
  return v;
}

// Zero or subnormal, in a format whose smallest normal exponent is emin.
DEV int below_normal(const Value &x, int emin) {
  return x.kind == FINITE && (!x.significand || top_bit(x.significand) + x.lsb < emin);
}

// An element of a or b, or the c that a chain starts with, as the unit takes it.
DEV Value flushed_operand(const Value &x, int emin) {
  return Unit::FLUSH_OPERANDS() && below_normal(x, emin) ? zero_value(emin, x.negative && Unit::OPERAND_SIGN()) : x;
}

// A number of a format as a result of the unit: zeros signed or not, subnormals kept or not.
DEV Value flushed_result(const Value &x, int emin) {
  if (x.kind || !(x.zero || (Unit::FLUSH_RESULTS() && below_normal(x, emin)))) return x;
  return zero_value(emin, x.negative && Unit::SIGNED_ZERO());
}

// The sum rounded to F with `precision` bits: beyond the largest finite value infinite, whatever the rounding.
template <class F> DEV Value round_wide(Wide sum, int negative_zero, int precision, int mode, u32 random) {
  int negative = is_negative(sum);
  if (is_zero(sum)) return zero_value(F::EMIN(), negative_zero);
  if (negative) negate(sum);
  int exponent = top_bit(sum) + LOW;
  if (exponent < F::EMIN()) exponent = F::EMIN();
  const int quantum = exponent - (precision - 1), at = quantum - LOW;
  Value v;
  v.negative = negative;
  v.kind = FINITE;
  u64 kept;
  v.lsb = quantum;
  if (at <= 0) {
    kept = bits_from(sum, 0);
    v.lsb = LOW;
  } else {
    kept = bits_from(sum, at);
    int half = (int)(bits_from(sum, at - 1) & 1);
    kept += rounds_up(mode, (int)(kept & 1), half, any_below(sum, at - 1), negative, bits_from(sum, at - 32) & 0xFFFFFFFFull, random);
  }
  v.significand = kept;
  v.zero = kept == 0;
  v.exponent = top_bit(kept) + v.lsb;
  if (kept && v.exponent > F::EMAX()) return special_value(INFINITE, negative);
  if (v.zero || v.exponent < F::EMIN()) v.exponent = F::EMIN();
  return v;
}

DEV Value to_output(const Wide &sum, int negative_zero, int mode, u32 random) {
  const int negative = is_negative(sum) || (is_zero(sum) && negative_zero);
  Value v = round_wide<O>(sum, negative_zero, Unit::KEPT(), mode, random);
  if (v.zero) v.negative = negative;
  return flushed_result(v, O::EMIN());
}

DEV Value product(const Value &a, const Value &b) {
  Value v;
  v.negative = a.negative ^ b.negative;
  if (a.kind || b.kind) {
    int nan = a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER || a.zero || b.zero;
    return special_value(nan ? NOT_A_NUMBER : INFINITE, v.negative);
  }
  v.significand = a.significand * b.significand;
  v.lsb = a.lsb + b.lsb;
  v.exponent = a.exponent + b.exponent;
  v.kind = FINITE;
  v.zero = v.significand == 0;
  return v;
}

// Infinities and NaN met so far among the terms of a sum.
struct Specials {
  u8 nan, plus, minus;
};

DEV void note(Specials &s, const Value &v) {
  if (v.kind == NOT_A_NUMBER) s.nan = 1;
  if (v.kind == INFINITE) (v.negative ? s.minus : s.plus) = 1;
}

DEV int any(const Specials &s) { return s.nan | s.plus | s.minus; }

DEV Value special_sum(const Specials &s) {
  return special_value(s.nan || (s.plus && s.minus) ? NOT_A_NUMBER : INFINITE, s.minus);
}

// x + y rounded in F; IEEE zeros.
template <class F> DEV Value add_in(const Value &x, const Value &y, int precision, int mode, u32 random) {
  Specials s = {0, 0, 0};
  note(s, x);
  note(s, y);
  if (any(s)) return special_sum(s);
  Wide sum;
  clear(sum);
  add(sum, x.significand, x.lsb, x.negative);
  add(sum, y.significand, y.lsb, y.negative);
  return round_wide<F>(sum, x.negative && y.negative && !x.significand && !y.significand, precision, mode, random);
}

// A term rounded to a multiple of 2^quantum and added to the sum; `random` is its word for SR.
DEV void add_aligned(Wide &sum, const Value &t, int quantum, int mode, u32 random) {
  const int shift = quantum - t.lsb;
  if (mode == EXACT || shift <= 0) {
    add(sum, t.significand, t.lsb, t.negative);
    return;
  }
  u128 kept = shift < 128 ? t.significand >> shift : 0;
  u128 rest = shift < 128 ? t.significand - (kept << shift) : t.significand;
  int half = shift <= 128 && (int)((t.significand >> (shift - 1)) & 1);
  int below = shift > 128 ? rest != 0 : (half ? rest - ((u128)1 << (shift - 1)) : rest) != 0;
  const u128 first = shift <= 32 ? rest << (32 - shift) : shift - 32 < 128 ? t.significand >> (shift - 32) : 0;
  kept += rounds_up(mode, (int)(kept & 1), half, below, t.negative, (u64)first & 0xFFFFFFFFull, random);
  add(sum, kept, quantum, t.negative);
}

// A magnitude rounded to a multiple of 2^quantum and added to the sum with its sign.
DEV void add_aligned(Wide &sum, Wide &magnitude, int negative, int quantum, int mode, u32 random) {
  const int at = quantum - LOW;
  if (mode != EXACT && at > 0) {
    const int odd = (int)(bits_from(magnitude, at) & 1), half = (int)(bits_from(magnitude, at - 1) & 1);
    const int up = rounds_up(mode, odd, half, any_below(magnitude, at - 1), negative,
                             bits_from(magnitude, at - 32) & 0xFFFFFFFFull, random);
    floor_to(magnitude, quantum);
    if (up) add(magnitude, (u128)1, quantum, 0);
  }
  if (negative) negate(magnitude);
  add(sum, magnitude);
}
