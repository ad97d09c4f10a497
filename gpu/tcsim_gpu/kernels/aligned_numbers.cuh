// What aligned.cuh computes with: a format's numbers as doubles and back, rounded as the unit rounds, added as a schedule adds.
//
// The host defines the structs of numbers.cuh, and: ALIGN_RZ ALIGN_RNE ALIGN_RD ALIGN_EXACT (one of them 1), SPECIALS SUM LATE_C, the tile
// BM BN TM TN, and STAGES.

#define L Unit::BLOCK()
#define F Unit::KEPT_FRACTION()
#define FLOOR Unit::FLOOR()  // least emax of a block with a zero term, or NO_FLOOR
#define NO_FLOOR (-100000)
#define SIMPLE Unit::SIMPLE()
#define PER_INSTRUCTION Unit::PER_INSTRUCTION()
#define KB Unit::STAGE_K()  // k in a stage
#define BIAS64 1023
#define BOTTOM 123  // biased emax where nothing is known to be larger; far below any format's exponents
#define SCALE (F - 52)
#define HAS_FLOOR (FLOOR != NO_FLOOR)
#if ALIGN_RZ + ALIGN_RNE + ALIGN_RD + ALIGN_EXACT != 1
#error "terms are cut by a rounding that this kernel does not have"
#endif
#define SIGN_CHANGES ALIGN_RZ

DEV double from_words(u32 high, u32 low) { return __hiloint2double((int)high, (int)low); }
DEV u32 high_word(double x) { return (u32)__double2hiint(x); }
DEV double power_of_two(u32 biased) { return from_words(biased << 20, 0); }

DEV double to_double(Value v, int scale) {
  v.lsb += scale;
  const u32 sign = v.negative ? 0x80000000u : 0;
  if (v.kind == NOT_A_NUMBER) return from_words(0x7FF80000u, 0);
  if (v.kind == INFINITE) return from_words(sign | 0x7FF00000u, 0);
  const u64 s = (u64)v.significand;
  if (!s) return from_words(sign, 0);
  const int top = top_bit(s);
  const u64 bits = (u64)(top + v.lsb + BIAS64) << 52 | ((s << (52 - top)) & 0xFFFFFFFFFFFFFull);
  return from_words(sign | (u32)(bits >> 32), (u32)bits);
}

// x rounded to P bits with last place at least 2^(EMIN_ - P + 1), infinite from 2^(EMAX_ + 1) on.
DEV double rounded(double x, int P, int EMIN_, int EMAX_, int MODE, u32 random) {
  const u32 sign = high_word(x) & 0x80000000u;
  const u32 field = (high_word(x) >> 20) & 0x7FF;
  const int lowest = EMIN_ + BIAS64;
  const u32 place = ((int)field > lowest ? field : lowest) - (P - 1);  // biased exponent of the last place
  const double magnitude = fabs(x), grid = power_of_two(place + 52);
  double y;
  if (MODE == RNE) {
    y = __dadd_rn(magnitude, grid);
  } else if (MODE == RNA) {
    y = __dadd_rz(__dadd_rz(magnitude, power_of_two(place - 1)), grid);
  } else if (MODE == SR) {
    const double fraction = __dadd_rn(from_words(0x43300000u, random), -4503599627370496.0);  // 2^52
    y = __dadd_rz(__dadd_rz(magnitude, __dmul_rn(fraction, power_of_two(place - 32))), grid);
  } else if ((MODE == RU && !sign) || (MODE == RD && sign)) {
    y = __dadd_ru(magnitude, grid);
  } else if (MODE == RZ || MODE == RO || MODE == RU || MODE == RD) {
    y = __dadd_rz(magnitude, grid);
  } else {
    no_such_rounding();
    y = magnitude;
  }
  double z = __dadd_rn(y, -grid);
  if (MODE == RO && z != magnitude) z = __dadd_rn(from_words(high_word(y), (u32)__double2loint(y) | 1), -grid);
  if (high_word(z) >= (u32)(EMAX_ + 1 + BIAS64) << 20) z = from_words(0x7FF00000u, 0);
  if (field == 0x7FF) z = magnitude;
  return from_words(high_word(z) | sign, __double2loint(z));
}

// Whether rounding can wait for the last block: c's truncation to the bits that alignment keeps cuts what rounding would.
#define LAZY (SIMPLE && ALIGN_RZ && !SUM && !LATE_C && F < Unit::KEPT())

// A block's exact sum as the unit's output.
DEV double block_result(double x, u32 random) {
  if (SIMPLE) {  // truncation where neither subnormals nor overflow can occur: drop the bits
    const int drop = 52 - (Unit::KEPT() - 1);
    const u32 low = drop >= 32 ? 0 : ~0u << (drop & 31), high = drop > 32 ? ~0u << ((drop - 32) & 31) : ~0u;
    return from_words(high_word(x) & high, (u32)__double2loint(x) & low);
  }
  return rounded(x, Unit::KEPT(), O::EMIN() + SCALE, O::EMAX() + SCALE, Unit::ROUNDING(), random);
}

// x + y rounded to odd, so that a rounding to fewer bits that follows is the only one.
DEV double sum_to_odd(double x, double y) {
  const double z = __dadd_rz(x, y);
  return __dadd_rd(x, y) < __dadd_ru(x, y) ? from_words(high_word(z), (u32)__double2loint(z) | 1) : z;
}

DEV double add_outside(double x, double y) {
  if (SUM == 16) return rounded(sum_to_odd(x, y), 11, -14, 15, RNE, 0);  // c and results may have more bits than float16
  const double sum = __dadd_rn(x, y);  // two numbers of 24 bits: a second rounding to as many changes nothing
  if (SUM == 32) return rounded(sum, 24, -126, 127, RNE, 0);
  return sum;
}

DEV u64 encode_double(double x) {
  const u32 high = high_word(x);
  const u64 bits = (u64)(high & 0x7FFFFFFFu) << 32 | (u32)__double2loint(x);
  const u64 sign = (u64)(high >> 31) << (O::WIDTH() - 1);
  if (bits > 0x7FF0000000000000ull) return Unit::NAN_CODE();
  if (bits == 0x7FF0000000000000ull) return sign | O::INF_CODE();
  if (!bits) return 0;
  const int exponent = (int)(bits >> 52) - BIAS64;
  const u64 significand = (bits & 0xFFFFFFFFFFFFFull) | 1ull << 52;
  const int at = exponent > O::EMIN() ? exponent : O::EMIN();
  const u64 kept = significand >> (52 - O::MB() + at - exponent);
  return sign | (((u64)(at + O::BIAS() - 1) << O::MB()) + kept) << O::PAD();
}

