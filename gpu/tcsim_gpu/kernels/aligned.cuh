// Aligned-sum units on CUDA cores, in double precision: two instructions a product, and specials, subnormals and any
// exponent come out of IEEE arithmetic by themselves.
//
// An accumulator holds M + S, where S is the sum of a block so far and M = 1.5 * 2^(52 + emax - F): as long as |S| is
// below a third of M, its last place is 2^(emax - F), the last bit that a term keeps. So fma(a, b, M + S) rounded down
// *is* the product, cut to that place and added exactly. A unit truncates magnitudes: for a negative product everything
// is negated, -(M + S) + |a b| rounded down, which truncates |a b| again. The host packs |a|, |b| and, as bit 31 of a
// mask, whether the sign differs from the sign before, so one three-input XOR negates the accumulator when it must.
// |S| < (L + 1) * 4 * 2^emax < 2^(50 + emax - F) is what the host checks. Everything is scaled by 2^(F - 52), a's
// values as they are packed, so M = 1.5 * 2^emax and its exponent field is emax itself.
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

struct Planes {  // packed operands, [batch][k][row or column] or [batch][block][row or column]
  const u32 *value, *change, *exponent;  // high word of the double; sign change; exponent (twice 16 bits, or once)
  const u32 *floor, *last;               // least emax of the block, as exponent is; sign of its last product
  i64 pitch, k_pad, blocks_pad;
};

struct Job {
  Planes a, b;
  const u8 *c;
  void *d;
  u32 *inexact;  // outputs whose exact alignment did not fit: count, then elements (as two words each)
  u64 seed;
  i64 batch, m, n;
  int blocks, segment_blocks, c_first;
  u32 field, sign;  // 0x7FF00000 and 0x80000000 of a double: not literals, so that one instruction can mask and set
};

DEV void copy16(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
#else
  *(uint4 *)to = *(const uint4 *)from;
#endif
}

DEV void end_of_stage() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}

DEV void wait_for_stage() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
#endif
}

// `rows` rows of WIDTH_ bytes, `pitch` bytes apart in global memory, to shared memory.
template <int WIDTH_> DEV void copy_rows(int rows, u8 *to, const void *from, i64 pitch) {
  constexpr int chunks = WIDTH_ / 16, threads = (BM / TM) * (BN / TN);
#pragma unroll
  for (int i = threadIdx.x; i < rows * chunks; i += threads)
    copy16(to + i * 16, (const u8 *)from + (i / chunks) * pitch + (i % chunks) * 16);
}

#define BLOCKS (KB / L)
#define A_VALUE 0
#define A_CHANGE (A_VALUE + KB * BM * 4)
#define A_EXPONENT (A_CHANGE + (SIGN_CHANGES ? KB * BM * 4 : 0))
#define B_VALUE (A_EXPONENT + KB * BM * 4)
#define B_CHANGE (B_VALUE + KB * BN * 4)
#define B_EXPONENT (B_CHANGE + (SIGN_CHANGES ? KB * BN * 4 : 0))
#define A_FLOOR (B_EXPONENT + KB * BN * 2)
#define B_FLOOR (A_FLOOR + (HAS_FLOOR ? BLOCKS * BM * 4 : 0))
#define A_LAST (B_FLOOR + (HAS_FLOOR ? BLOCKS * BN * 2 : 0))
#define B_LAST (A_LAST + (SPECIALS && SIGN_CHANGES ? BLOCKS * BM * 4 : 0))
#define STAGE_BYTES (B_LAST + (SPECIALS && SIGN_CHANGES ? BLOCKS * BN * 4 : 0))

DEV void load_stage(u8 *s, const Job &job, i64 batch, i64 row, i64 column, int stage) {
  const i64 ka = batch * job.a.k_pad + (i64)stage * KB, kb = batch * job.b.k_pad + (i64)stage * KB;
  const i64 a = ka * job.a.pitch + row, b = kb * job.b.pitch + column;
  copy_rows<BM * 4>(KB, s + A_VALUE, job.a.value + a, job.a.pitch * 4);
  copy_rows<BM * 4>(KB, s + A_EXPONENT, job.a.exponent + a, job.a.pitch * 4);
  copy_rows<BN * 4>(KB, s + B_VALUE, job.b.value + b, job.b.pitch * 4);
  copy_rows<BN * 2>(KB, s + B_EXPONENT, (const u16 *)job.b.exponent + b, job.b.pitch * 2);
  if (SIGN_CHANGES) {
    copy_rows<BM * 4>(KB, s + A_CHANGE, job.a.change + a, job.a.pitch * 4);
    copy_rows<BN * 4>(KB, s + B_CHANGE, job.b.change + b, job.b.pitch * 4);
  }
  const i64 fa = (batch * job.a.blocks_pad + (i64)stage * BLOCKS) * job.a.pitch + row;
  const i64 fb = (batch * job.b.blocks_pad + (i64)stage * BLOCKS) * job.b.pitch + column;
  if (HAS_FLOOR) {
    copy_rows<BM * 4>(BLOCKS, s + A_FLOOR, job.a.floor + fa, job.a.pitch * 4);
    copy_rows<BN * 2>(BLOCKS, s + B_FLOOR, (const u16 *)job.b.floor + fb, job.b.pitch * 2);
  }
  if (SPECIALS && SIGN_CHANGES) {
    copy_rows<BM * 4>(BLOCKS, s + A_LAST, job.a.last + fa, job.a.pitch * 4);
    copy_rows<BN * 4>(BLOCKS, s + B_LAST, job.b.last + fb, job.b.pitch * 4);
  }
  end_of_stage();
}

// N words of this thread's rows (contiguous) or columns (four, then four from the middle of the tile on).
template <int N, int SPLIT> DEV void words(u32 (&to)[N], const u8 *from, int first) {
  const u32 *p = (const u32 *)from + first;
  if constexpr (N == 2) {
    const uint2 v = *(const uint2 *)p;
    to[0] = v.x, to[1] = v.y;
  } else {
#pragma unroll
    for (int q = 0; q < N / 4; q++) {
      const uint4 v = *(const uint4 *)(p + q * SPLIT);
      to[4 * q] = v.x, to[4 * q + 1] = v.y, to[4 * q + 2] = v.z, to[4 * q + 3] = v.w;
    }
  }
}

// The exponents of this thread's columns, two a word.
DEV void pairs(u32 (&to)[TN / 2], const u8 *from, int first) {
  const u16 *p = (const u16 *)from + first;
#pragma unroll
  for (int q = 0; q < TN / 4; q++) {
    const uint2 v = *(const uint2 *)(p + q * (BN / 2));
    to[2 * q] = v.x, to[2 * q + 1] = v.y;
  }
}

// (x & y) | z as one instruction, which the compiler would otherwise take apart.
DEV u32 and_or(u32 x, u32 y, u32 z) {
#ifdef __CUDACC__
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(x), "r"(y), "r"(z));
  return result;
#else
  return (x & y) | z;
#endif
}

// x's high word without its sign. No finite double's high word is a float NaN here, so the addition, which is for the
// float pipe's sake, changes nothing else.
DEV u32 unsigned_high(double x) {
  if (SPECIALS) return high_word(x) & 0x7FFFFFFFu;
#ifdef __CUDACC__
  float y;
  asm("{\n.reg .f32 t;\nabs.f32 t, %1;\nadd.f32 %0, t, 0f80000000;\n}" : "=f"(y) : "f"(__uint_as_float(high_word(x))));
  return __float_as_uint(y);
#else
  return high_word(x) & 0x7FFFFFFFu;
#endif
}

// The exponent of M in its field, from the exponents of a block's products (in the top bits of `products`) and of c.
// Below the field anything may stand.
DEV u32 top_exponent(u32 products, double c) {
  u32 mine = unsigned_high(c);
  const u32 unscale = (u32)-SCALE << 20;
  // c aligns by its format's exponent, a zero by the unit's floor: where products lie lower, where there is a floor, and where a
  // subnormal c is cut though all products are zero (but for truncations, of which the last cuts as much)
  const bool truncates = ALIGN_RZ && Unit::ROUNDING() == RZ && Unit::KEPT() <= F + 1;
  if (O::EMIN() > A::EMIN() + B::EMIN() || HAS_FLOOR || (F < O::MB() && !truncates)) {
    const bool zero = (mine | (u32)__double2loint(c)) == 0;
    const u32 least = (u32)(O::EMIN() + BIAS64) << 20, none = HAS_FLOOR ? (u32)(FLOOR + BIAS64) << 20 : 0;
    mine = zero ? none : max(mine + unscale, least);
    products = max(products, mine);
  } else {
    products = __viaddmax_u32(mine, unscale, products);
  }
  return SPECIALS ? min(products, 1900u << 20) : products;
}

DEV double unscaled(double x) { return __dmul_rn(x, power_of_two(BIAS64 - SCALE)); }

#if KEEP_MAGIC || ALIGN_RNE
#define MAGIC(i, j, x) magic[i][j]
#else  // M again, from M + S; of an infinite M + S any finite M will do
#define MAGIC(i, j, x) (SPECIALS ? min((high_word(x) & job.field) | 0x80000u, 0x7FE80000u) : (high_word(x) & job.field) | 0x80000u)
#endif

extern "C" __global__ void __launch_bounds__((BM / TM) * (BN / TN), MIN_CTAS) aligned(const __grid_constant__ Job job) {
  extern __shared__ __align__(128) u8 shared[];
  const i64 tiles_m = (job.m + BM - 1) / BM, tiles_n = (job.n + BN - 1) / BN, group = 8;
  const i64 in_group = group * tiles_n, g = blockIdx.x / in_group, rows = min(group, tiles_m - g * group);
  const i64 row0 = (g * group + blockIdx.x % in_group % rows) * BM, column0 = blockIdx.x % in_group / rows * BN;
  const i64 batch = blockIdx.y + (i64)blockIdx.z * gridDim.y;
  if (batch >= job.batch) return;
  const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
  const int stages = (job.blocks + BLOCKS - 1) / BLOCKS;

  double acc[TM][TN];  // c between blocks, M + S (or its negative) in a block
#if ALIGN_EXACT
  double upper[TM][TN];
  u64 inexact = 0;
#endif
#if LATE_C || SUM
  double total[TM][TN];
#endif
#if LATE_C && SUM
  double outer[TM][TN];
#endif
#define ROW(i) (row0 + ty * TM + (i))
#define COLUMN(j) (column0 + tx * 4 + ((j) / 4) * (BN / 2) + (j) % 4)
#define ELEMENT(i, j) ((batch * job.m + ROW(i)) * job.n + COLUMN(j))
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      double c = 0;
      if (job.c && ROW(i) < job.m && COLUMN(j) < job.n)
        c = to_double(decode<O>(load_code(job.c, ELEMENT(i, j) * O::BYTES(), O::BYTES()), O::EMIN()), LATE_C || SUM ? 0 : SCALE);
      acc[i][j] = 0;
#if SUM && LATE_C
      outer[i][j] = job.c_first ? c : 0;
      total[i][j] = 0;
#elif SUM
      total[i][j] = job.c_first ? c : 0;
#elif LATE_C
      total[i][j] = c;
#else
      acc[i][j] = c;
#endif
    }

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) load_stage(shared + s * STAGE_BYTES, job, batch, row0, column0, s);
    else end_of_stage();
  }
  int block = 0, in_segment = 0;
  for (int stage = 0; stage < stages; stage++) {
    wait_for_stage();
    __syncthreads();
    if (stage + STAGES - 1 < stages)
      load_stage(shared + (stage + STAGES - 1) % STAGES * STAGE_BYTES, job, batch, row0, column0, stage + STAGES - 1);
    else end_of_stage();
    const u8 *s = shared + stage % STAGES * STAGE_BYTES;
#pragma unroll UNROLL_BLOCKS
    for (int q = 0; q < BLOCKS && block < job.blocks; q++, block++) {
      u32 emax[TM][TN / 2];
      {
        u32 fa[TM], fb[TN / 2];
        if (HAS_FLOOR) {
          words<TM, 4>(fa, s + A_FLOOR + q * BM * 4, ty * TM);
          pairs(fb, s + B_FLOOR + q * BN * 2, tx * 4);
        }
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN / 2; j++) emax[i][j] = HAS_FLOOR ? __vmaxs2(fa[i], fb[j]) : BOTTOM * 0x10001u;
      }
#pragma unroll UNROLL
      for (int k = q * L; k < q * L + L; k++) {
        u32 ea[TM], eb[TN / 2];
        words<TM, 4>(ea, s + A_EXPONENT + k * BM * 4, ty * TM);
        pairs(eb, s + B_EXPONENT + k * BN * 2, tx * 4);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN / 2; j++) emax[i][j] = __viaddmax_s16x2(ea[i], eb[j], emax[i][j]);
      }
#if KEEP_MAGIC || ALIGN_RNE
      u32 magic[TM][TN];
#endif
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
          const double c = acc[i][j];
          const u32 top = top_exponent(j & 1 ? emax[i][j / 2] << 4 : emax[i][j / 2] << 20, c);
          const u32 high = and_or(top, job.field, 0x80000u);
#if KEEP_MAGIC || ALIGN_RNE
          magic[i][j] = high;
#endif
          const double m = from_words(ALIGN_RZ ? and_or(high_word(c), job.sign, high) : high, 0);
#if ALIGN_RZ
          const double x = __dadd_rd(fabs(c), m);
          acc[i][j] = from_words(high_word(x) ^ (high_word(c) & 0x80000000u), __double2loint(x));
#elif ALIGN_RD
          acc[i][j] = __dadd_rd(m, c);
#elif ALIGN_RNE
          acc[i][j] = __dadd_rn(m, c);
#else
          acc[i][j] = __dadd_rd(m, c);
          upper[i][j] = __dadd_ru(m, c);
#endif
        }
#pragma unroll UNROLL
      for (int k = q * L; k < q * L + L; k++) {
        u32 a[TM], b[TN];
        words<TM, 4>(a, s + A_VALUE + k * BM * 4, ty * TM);
        words<TN, BN / 2>(b, s + B_VALUE + k * BN * 4, tx * 4);
#if ALIGN_RZ
        u32 da[TM], db[TN];
        words<TM, 4>(da, s + A_CHANGE + k * BM * 4, ty * TM);
        words<TN, BN / 2>(db, s + B_CHANGE + k * BN * 4, tx * 4);
#endif
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) {
            const double x = from_words(a[i], 0), y = from_words(b[j], 0);
#if ALIGN_RZ
            acc[i][j] = __fma_rd(x, y, from_words(high_word(acc[i][j]) ^ da[i] ^ db[j], __double2loint(acc[i][j])));
#elif ALIGN_RD
            acc[i][j] = __fma_rd(x, y, acc[i][j]);
#elif ALIGN_RNE  // a tie goes to the even multiple of the product, so it is cut alone
            const double m = from_words(magic[i][j], 0);
            acc[i][j] = __dadd_rn(acc[i][j], __dadd_rn(__fma_rn(x, y, m), -m));
#else  // rounded down and up: all terms were exact where both sums agree
            acc[i][j] = __fma_rd(x, y, acc[i][j]);
            upper[i][j] = __fma_ru(x, y, upper[i][j]);
#endif
          }
      }
      u32 la[TM], lb[TN];
      if (SPECIALS && SIGN_CHANGES) {
        words<TM, 4>(la, s + A_LAST + q * BM * 4, ty * TM);
        words<TN, BN / 2>(lb, s + B_LAST + q * BN * 4, tx * 4);
      }
#if LATE_C || SUM
      const bool segment_ends = SUM && (in_segment + 1 == job.segment_blocks || block + 1 == job.blocks);
#endif
#if LATE_C
      const bool instruction_ends = (in_segment + 1) % PER_INSTRUCTION == 0 || segment_ends || block + 1 == job.blocks;
#endif
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
          double x = acc[i][j];
          if (SPECIALS && SIGN_CHANGES) x = from_words(high_word(x) ^ la[i] ^ lb[j], __double2loint(x));
          const double m = from_words(MAGIC(i, j, x), 0);
          x = SIGN_CHANGES && !SPECIALS ? __dadd_rn(fabs(x), -m) : __dadd_rn(x, -m);
#if ALIGN_EXACT
          const double above = __dadd_rn(upper[i][j], -from_words(MAGIC(i, j, upper[i][j]), 0));
          if (x < above || x > above) inexact |= 1ull << (i * TN + j);
#endif
          const u32 random = Unit::ROUNDING() == SR ? random_word(job.seed, ELEMENT(i, j), block, 0) : 0;
          acc[i][j] = LAZY ? x : block_result(x, random);
#if LATE_C
          if (instruction_ends) {
            total[i][j] = rounded(__dadd_rn(total[i][j], unscaled(acc[i][j])), O::MB() + 1, O::EMIN(), O::EMAX(), RNE, 0);
            acc[i][j] = 0;
          }
#endif
#if LATE_C && SUM
          if (segment_ends) {
            outer[i][j] = add_outside(outer[i][j], total[i][j]);
            total[i][j] = 0;
          }
#elif SUM
          if (segment_ends) {
            total[i][j] = add_outside(total[i][j], unscaled(acc[i][j]));
            acc[i][j] = 0;
          }
#endif
        }
#if LATE_C || SUM
      in_segment = segment_ends ? 0 : in_segment + 1;
#endif
    }
  }

#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      if (ROW(i) >= job.m || COLUMN(j) >= job.n) continue;
#if LATE_C && SUM
      double x = outer[i][j];
#elif LATE_C || SUM
      double x = total[i][j];
#else
      double x = unscaled(LAZY ? block_result(acc[i][j], 0) : acc[i][j]);
#endif
#if SUM
      if (job.c && !job.c_first)
        x = add_outside(x, to_double(decode<O>(load_code(job.c, ELEMENT(i, j) * O::BYTES(), O::BYTES()), O::EMIN()), 0));
      x = rounded(x, O::MB() + 1, O::EMIN(), O::EMAX(), RNE, 0);
#endif
      store_code(job.d, ELEMENT(i, j), O::BYTES(), encode_double(x));
#if ALIGN_EXACT
      if (inexact >> (i * TN + j) & 1) {
        const u32 at = atomicAdd(job.inexact, 1u);
        ((u64 *)(job.inexact + 2))[at] = ELEMENT(i, j);
      }
#endif
    }
}
