// Codes of the format FROM as values: in a pattern of float32 or float64 (a WORD, STORAGE its format), rounded there to the values of
// another format, and put down as the pattern or as a code. The functions are those of tcsim.fp.compiled, which says what they do.
//
// FIELDS and RULES name the members of its Fields and CodeRules, in their order.

struct Fields {
  WORD FIELDS;
};
struct Rules {
  WORD RULES;
};
struct ValuesJob {
  const u8 *from;
  u8 *to;
  const u64 *random;
  u32 *lost;
  i64 count;
  u64 seed;
  u64 rounded[FIELD_COUNT], packed[FIELD_COUNT], rules[RULE_COUNT];
  u32 how, centred, bits, look, infinite, nan, zero, packs, bytes;
};
enum { AS_IT_IS, NEAREST, DIRECTED, ODD, PROPORTIONAL, EQUAL, REDUCED_TO_EVEN, REDUCED_TO_ODD };  // `how`
enum { AT_NOTHING, AT_NAN, AT_VALUES };                                                          // `look`

template <class T, int N> DEV T words(const u64 (&given)[N]) {
  T found;
#pragma unroll
  for (int i = 0; i < N; i++) ((WORD *)&found)[i] = (WORD)given[i];
  return found;
}

DEV WORD left(WORD x, WORD n) { return n < 8 * sizeof(WORD) ? x << n : 0; }
DEV WORD right(WORD x, WORD n) { return n < 8 * sizeof(WORD) ? x >> n : 0; }
DEV WORD ones(WORD n) { return left(1, n) - 1; }
DEV WORD cut(WORD a, WORD s) { return a & ~ones(s); }

struct Place {
  WORD shift, field;
};

DEV Place place_of(WORD a, const Fields &p) {
  const WORD field = max(a >> p.mantissa, (WORD)1), below = field < p.field ? p.field - field : 0;
  return {min((WORD)(p.shift + below), p.top), field};
}

DEV WORD significand_of(WORD a, const Fields &p) { return a < left(1, p.mantissa) ? a : (a & ones(p.mantissa)) | left(1, p.mantissa); }

DEV WORD finished(WORD pattern, WORD rounded, bool up, const Fields &p) {
  const WORD sign = pattern & p.sign, a = pattern ^ sign;
  WORD result = a < p.least ? (up ? p.least : 0) : rounded;
  if (result < p.normal) result = 0;
  if (result > (sign ? p.limit_neg : p.limit_pos)) result = sign ? p.over_neg : p.over_pos;
  if (a == p.infinity) result = sign ? p.inf_neg : p.inf_pos;
  if (a > p.infinity) result = (a & p.nan_keep) | p.nan_set;
  const bool empty = result == 0;
  return (empty ? p.zero : result) | (sign & (empty ? p.zero_sign : p.value_sign));
}

DEV WORD nearest(WORD pattern, const Fields &p) {
  const WORD a = pattern & ~p.sign, s = place_of(a, p).shift, mask = ones(s);
  const WORD tie = (right(a + p.parity, s) | p.tie_always) & mask & p.tie_odd;
  return finished(pattern, cut(a + (mask >> 1) + tie, s), a >= p.least_from_pos, p);
}

DEV WORD directed(WORD pattern, const Fields &p) {
  const WORD sign = pattern & p.sign, a = pattern ^ sign, s = place_of(a, p).shift;
  const WORD away = ones(s) & (sign ? p.away_neg : p.away_pos);
  return finished(pattern, cut(a + away, s), a >= (sign ? p.least_from_neg : p.least_from_pos), p);
}

DEV WORD to_odd(WORD pattern, const Fields &p) {
  const WORD a = pattern & ~p.sign, s = place_of(a, p).shift;
  return finished(pattern, cut(a + (right(a + p.parity, s) & 1 ? 0 : ones(s)), s), a >= 1, p);
}

DEV WORD by_chance(WORD pattern, WORD random, const Fields &p) {
  const WORD a = pattern & ~p.sign;
  const Place at = place_of(a, p);
  const WORD rounded = cut(a + right(random >> 1, p.top - at.shift), at.shift), distance = p.left_field - at.field;
  const WORD fraction = distance > p.top ? 0 : right(left(significand_of(a, p), p.left), distance);
  return finished(pattern, rounded, (WORD)(fraction + random) < random || a >= p.least_always, p);
}

DEV WORD by_a_coin(WORD pattern, WORD random, const Fields &p) {
  const WORD a = pattern & ~p.sign, s = place_of(a, p).shift;
  const bool heads = random >> p.top;
  return finished(pattern, cut(a + (heads ? ones(s) : 0), s), (heads && a >= 1) || a >= p.least_always, p);
}

DEV WORD by_reduced_chance(WORD pattern, WORD random, WORD n, WORD odd, const Fields &p) {
  const WORD a = pattern & ~p.sign;
  const Place at = place_of(a, p);
  const WORD k = n < at.shift ? at.shift - n : 0, mask = ones(k);
  const WORD reduced = cut(a + (mask >> 1) + (((right(a, k) ^ odd) & 1) & mask), k);
  const WORD rounded = cut(reduced + right(random >> 1, p.top - at.shift), at.shift);
  const WORD significand = significand_of(a, p), apart = p.left_field - at.field;
  const bool far = apart > p.top;
  const WORD distance = far ? 0 : apart, scaled = left(significand, p.left);
  const WORD lost = far ? significand : scaled & ones(distance);
  const WORD fraction = (far ? 0 : right(scaled, distance)) | (lost ? 1 : 0);
  const WORD below = p.top - (n - 1), rest = fraction - left(right(fraction, below), below), middle = left(1, below - 1);
  WORD units = right(fraction, below);
  units += rest == middle ? ((units ^ odd) & 1) : rest > middle;
  return finished(pattern, rounded, (WORD)(units + right(random, below)) >= left(1, n) || a >= p.least_always, p);
}

DEV WORD rounded(WORD pattern, i64 i, const ValuesJob &job, const Fields &p) {
  if (job.how == NEAREST) return nearest(pattern, p);
  if (job.how == DIRECTED) return directed(pattern, p);
  if (job.how == ODD) return to_odd(pattern, p);
  u64 drawn = job.random ? job.random[i] : random_word(job.seed, i, 0, 0) >> (32 - job.bits);
  const WORD n = job.bits + job.centred;
  if (job.centred) drawn = 2 * drawn + 1;
  const WORD random = left((WORD)drawn, 8 * sizeof(WORD) - n);
  if (job.how == PROPORTIONAL) return by_chance(pattern, random, p);
  if (job.how == EQUAL) return by_a_coin(pattern, random, p);
  return by_reduced_chance(pattern, random, n, job.how == REDUCED_TO_ODD, p);
}

// The pattern of a code, NaN with their sign and payload.
DEV WORD pattern_of(u64 code) {
  if (AS_STORED) return (WORD)code;
  const Value v = decode<FROM>(code, FROM::EMIN());
  if (v.kind != NOT_A_NUMBER) return (WORD)encode_exact<STORAGE>(v, 0);
  const u64 fraction = (code >> FROM::PAD()) & ((1ull << FROM::MB()) - 1), quiet = 1ull << (STORAGE::MB() - 1);
  const u64 set = FROM::NAN_STYLE() == NAN_IEEE ? fraction << (STORAGE::MB() - FROM::MB()) : quiet;
  return (WORD)((v.negative ? 1ull << (STORAGE::WIDTH() - 1) : 0) | STORAGE::INF_CODE() | set);
}

// The code of a pattern that is one of the format's values.
DEV WORD code_of(WORD pattern, const Fields &p, const Rules &r) {
  const WORD sign = pattern & p.sign, a = pattern ^ sign, fraction = a & ones(p.mantissa);
  const Place at = place_of(a, p);
  const WORD payload = right(fraction, p.shift) & r.payload;
  WORD code = at.field < p.field ? right(significand_of(a, p), at.shift) : right(a, p.shift) - r.rebias, has_sign = r.is_signed;
  if (a > p.infinity) code = r.nan | (payload ? payload : r.quiet), has_sign = r.nan_signed;
  if (a == p.infinity) code = r.infinity;
  if (!a) code = 0, has_sign = r.negative_zero;
  return left(code | left(sign ? has_sign : 0, r.sign_place), r.padding);
}

// Whether the format lacks a value.
DEV bool lacks(WORD pattern, const ValuesJob &job, const Fields &p) {
  const WORD sign = pattern & p.sign, a = pattern ^ sign;
  if (a == p.infinity) return !(job.infinite && (sign | p.value_sign) == p.value_sign);
  if (a > p.infinity) return !job.nan;
  if (a < p.least && !(job.zero && !a)) return true;
  return (a & ones(place_of(a, p).shift)) || a > (sign ? p.limit_neg : p.limit_pos);
}

extern "C" __global__ void values(const __grid_constant__ ValuesJob job) {
  const Fields p = words<Fields>(job.rounded), q = words<Fields>(job.packed);
  const Rules r = words<Rules>(job.rules);
  const u64 unused = FROM::WIDTH() < 64 ? ~0ull << (FROM::WIDTH() & 63) | ((1ull << FROM::PAD()) - 1) : 0;
  bool lost = false;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < job.count; i += (i64)gridDim.x * blockDim.x) {
    const u64 code = load_code(job.from, i * FROM::BYTES(), FROM::BYTES());
    WORD x = pattern_of(code);
    lost = lost || (code & unused) || (job.look == AT_NAN && (x & ~q.sign) > q.infinity) || (job.look == AT_VALUES && lacks(x, job, q));
    if (job.how != AS_IT_IS) x = rounded(x, i, job, p);
    store_code(job.to, i, job.bytes, job.packs ? code_of(x, q, r) : x);
  }
  if (lost) *job.lost = 1;
}
