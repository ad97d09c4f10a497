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
// Begins with aligned_numbers.cuh and aligned_stages.cuh.

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
