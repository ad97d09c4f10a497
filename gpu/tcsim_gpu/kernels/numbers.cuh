// Codes and exact values: what a code of a format means, and the words of stochastic rounding.
//
// A format is a struct of numbers that the host writes from the table: EB MB BIAS PAD SIGNED ZERO NAN_STYLE INTEGER
// WIDTH EMIN EMAX, MAX_CODE (largest finite), INF_CODE (all ones where there is none). Its members are functions: each
// returns a CONSTANT of one unit's kernel, or, in a kernel for any unit, READs its place in the record that was launched with.
#ifndef TCSIM_NUMBERS
#define TCSIM_NUMBERS
#ifndef DEV
#ifdef __CUDACC__
#define DEV __device__ __forceinline__
#else
#define DEV static inline
#endif
#endif
#ifdef __CUDACC__
#define MEMBER __device__ __forceinline__
#else
#define MEMBER inline
#endif
#define CONSTANT(type, name, value) static MEMBER constexpr type name() { return value; }
#define READ(type, name, place) static MEMBER type name() { return (type)record_words[place]; }
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned __int128 u128;

#ifdef RECORD_WORDS
extern "C" {
#ifdef __CUDACC__
__constant__ i64 record_words[RECORD_WORDS];
#else
static thread_local i64 record_words[RECORD_WORDS];
void use_record(const i64 *words, int count) { for (int i = 0; i < count; i++) record_words[i] = words[i]; }
#endif
}
#endif

// Outputs of a list: `count`, or as many as the device knows, none where those are more.

enum { FINITE = 0, INFINITE = 1, NOT_A_NUMBER = 2 };
// The numbers of the rounding modes (RZ, RNE …, EXACT) and ROUNDS_UP_CASES, which the host writes from its table.
ROUNDING_MODES

// A rounding that a kernel has no code for: the launch fails, nothing is truncated in silence.
DEV void no_such_rounding() {
#ifdef __CUDA_ARCH__
  __trap();
#else
  __builtin_trap();
#endif
}

enum { NAN_IEEE = 0, NAN_ALL_ONES = 1, NAN_NEGATIVE_ZERO = 2, NAN_NONE = 3 };

// (-1)^negative * significand * 2^lsb, aligned by `exponent`; `zero` marks a zero operand or product. A unit that keeps
// NaN operands has their codes in `significand`.
struct Value {
  u128 significand;
  int lsb, exponent;
  u8 negative, kind, zero;
};

DEV int top_bit(u64 x) {  // floor(log2 x), -1 for 0
#ifdef __CUDA_ARCH__
  return 63 - __clzll((i64)x);
#else
  return x ? 63 - __builtin_clzll(x) : -1;
#endif
}

DEV int top_bit(u128 x) { return (u64)(x >> 64) ? 64 + top_bit((u64)(x >> 64)) : top_bit((u64)x); }

// The value of a code of F, with the exponent it has in a format whose smallest normal exponent is emin.
template <class F> DEV Value decode(u64 code, int emin) {
  Value v;
  v.kind = FINITE;
  if (F::INTEGER()) {
    i64 x = (i64)(code << (64 - F::WIDTH())) >> (64 - F::WIDTH());
    v.negative = x < 0;
    v.significand = (u64)(x < 0 ? -x : x);
    v.lsb = v.exponent = 0;
    v.zero = x == 0;
    return v;
  }
  const u64 sign = F::SIGNED() ? 1ull << (F::WIDTH() - 1) : 0;
  const u64 magnitude = code & ~sign & (F::WIDTH() == 64 ? ~0ull : (1ull << (F::WIDTH() & 63)) - 1);
  v.negative = (code & sign) != 0;
  u64 field = magnitude >> F::PAD() >> F::MB(), fraction = (magnitude >> F::PAD()) & ((1ull << F::MB()) - 1);
  u64 significand = fraction + (field || !F::ZERO() ? 1ull << F::MB() : 0);
  v.significand = significand;
  v.lsb = (int)(F::ZERO() && !field ? 1 : field) - F::BIAS() - F::MB();
  v.zero = significand == 0;
  v.exponent = top_bit(significand) + v.lsb;
  if (v.zero || v.exponent < emin) v.exponent = emin;
  if (F::NAN_STYLE() == NAN_NEGATIVE_ZERO && sign && code == sign) v.kind = NOT_A_NUMBER;
  if (magnitude > F::MAX_CODE()) v.kind = magnitude == F::INF_CODE() ? INFINITE : NOT_A_NUMBER;
  if (v.kind != FINITE) v.zero = 0;
  return v;
}

// The code of a value that F holds.
template <class F> DEV u64 encode_exact(const Value &v, u64 nan_code) {
  if (v.kind == NOT_A_NUMBER) return nan_code;
  const u64 sign = v.negative && F::SIGNED() ? 1ull << (F::WIDTH() - 1) : 0;
  if (v.kind == INFINITE) return sign | F::INF_CODE();
  if (!v.significand) return F::NAN_STYLE() == NAN_NEGATIVE_ZERO ? 0 : sign;
  const int exponent = top_bit(v.significand) + v.lsb, at = exponent > F::EMIN() ? exponent : F::EMIN();
  const int shift = at - F::MB() - v.lsb;
  const u64 significand = shift >= 0 ? (u64)(v.significand >> shift) : (u64)v.significand << -shift;
  return sign | ((((u64)(at + F::BIAS() - 1) << F::MB()) + significand) << F::PAD());
}

// Philox4x32-10 of the counter (element low, element high, step / 4, operation): word step % 4.
DEV u32 random_word(u64 seed, u64 element, u32 step, u32 operation) {
  u32 c0 = (u32)element, c1 = (u32)(element >> 32), c2 = step >> 2, c3 = operation;
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  u32 low = step & 1 ? c1 : c0, high = step & 1 ? c3 : c2;
  return step & 2 ? high : low;
}

DEV u64 load_code(const void *p, i64 byte_offset, int bytes) {
  const u8 *q = (const u8 *)p + byte_offset;
  return bytes == 1 ? *q : bytes == 2 ? *(const u16 *)q : bytes == 4 ? *(const u32 *)q : *(const u64 *)q;
}

DEV void store_code(void *p, i64 index, int bytes, u64 code) {
  if (bytes == 1) ((u8 *)p)[index] = (u8)code;
  if (bytes == 2) ((u16 *)p)[index] = (u16)code;
  if (bytes == 4) ((u32 *)p)[index] = (u32)code;
  if (bytes == 8) ((u64 *)p)[index] = code;
}
#endif
