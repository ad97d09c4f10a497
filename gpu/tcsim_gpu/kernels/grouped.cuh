// Units that add groups of 16 products exactly before they align them (NVFP4, MXFP4), in double precision: four dot products of
// four small integers make a group's sum, and five instructions of double precision scale it, cut it and add it.
//
// A group's term is sum * scale_a * scale_b, and aligns by the exponent of its scales. fma(|sum|, scale, M) rounded down, less M, is
// its magnitude cut to the last place of M = 1.5 * 2^(52 + emax - F), as in aligned.cuh; the cut terms of a block are then added
// with their signs, exactly. |term| < 2^(50 + emax - F) is what the host checks. NaN comes in as a scale.
//
// The host defines the structs of numbers.cuh, what doubles.cuh asks for, and the tile BM BN TM TN.

#define GROUPS Unit::GROUPS()        // of a block
#define AT_ONCE Unit::STAGE_GROUPS()  // staged
#define MOST_GROUPS 8

struct Groups {  // a packed operand, [batch][row or column][group]
  const uint4 *numbers;  // 16 integers of 8 bits
  const uint2 *about;    // upper word of the scale, a double; its exponent and which numbers are not zero, 16 bits each
  i64 rows, groups;
};

struct Grouped {
  Groups a, b;
  const u8 *c;
  void *d;
  const i64 *list;   // outputs to compute, for `listed`
  u64 seed;
  i64 batch, m, n, count, paired;  // paired: row and column t of the operands are those of the list's output t
  int blocks;
  u32 field;  // 0x7FF00000: not a literal, so that one instruction can mask and set
};

DEV int group_sum(uint4 a, uint4 b) { return __dp4a((int)a.x, (int)b.x, __dp4a((int)a.y, (int)b.y, __dp4a((int)a.z, (int)b.z, __dp4a((int)a.w, (int)b.w, 0)))); }

// The exponent of a group, the floor's where all of its products are zero.
DEV int group_exponent(uint2 a, uint2 b) {
  const int least = HAS_FLOOR ? FLOOR + BIAS64 : BOTTOM;
  return a.y & b.y & 0xFFFF ? ((int)a.y >> 16) + ((int)b.y >> 16) : least;
}

DEV double with_sign_of(u32 sign, double x) { return from_words(high_word(x) | (sign & 0x80000000u), (u32)__double2loint(x)); }

DEV double cut_group(int sum, uint2 a, uint2 b, double m) {
  const double whole = __dadd_rn(from_words(0x43300000u, (u32)(sum < 0 ? -sum : sum)), -4503599627370496.0);  // 2^52
  const double scale = __dmul_rn(from_words(a.x, 0), from_words(b.x, 0));
  return with_sign_of((u32)sum, __dadd_rn(__fma_rd(whole, scale, m), -m));
}

DEV double cut_c(double c, double m) { return with_sign_of(high_word(c), __dadd_rn(__dadd_rd(fabs(c), m), -m)); }

DEV double magic(int emax, double c, u32 field) { return from_words(and_or(top_exponent((u32)emax << 20, c), field, 0x80000u), 0); }

DEV double after_block(double sum, const Grouped &job, i64 element, int block) {
  return block_result(sum, Unit::ROUNDING() == SR ? random_word(job.seed, element, block, 0) : 0);
}

DEV double first_c(const Grouped &job, i64 element) {
  return job.c ? to_double(decode<O>(load_code(job.c, element * O::BYTES(), O::BYTES()), O::EMIN()), SCALE) : 0;
}

// A thread an output of the list: its blocks one after the other, the groups of a block at once.
extern "C" __global__ void listed(const __grid_constant__ Grouped job) {
  const i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (at >= job.count) return;
  const i64 element = job.list[at], j = element % job.n, i = element / job.n % job.m, z = element / job.n / job.m;
  const i64 a0 = (job.paired ? at : z * job.a.rows + i) * job.a.groups, b0 = (job.paired ? at : z * job.b.rows + j) * job.b.groups;
  double c = first_c(job, element);
#pragma unroll 4
  for (int block = 0; block < job.blocks; block++) {
    int sums[MOST_GROUPS], emax = BOTTOM;
    uint2 of_a[MOST_GROUPS], of_b[MOST_GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const i64 place = (i64)block * GROUPS + g;
      of_a[g] = job.a.about[a0 + place], of_b[g] = job.b.about[b0 + place];
      sums[g] = group_sum(job.a.numbers[a0 + place], job.b.numbers[b0 + place]);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) emax = max(emax, group_exponent(of_a[g], of_b[g]));
    const double m = magic(emax, c, job.field);
    double sum = cut_c(c, m);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) sum = __dadd_rn(sum, cut_group(sums[g], of_a[g], of_b[g], m));
    c = after_block(sum, job, element, block);
  }
  store_code(job.d, element, O::BYTES(), encode_double(unscaled(c)));
}

// Rows of a stage are 16 bytes apart, and groups one row more than there are, so that neither stores nor loads meet in a bank.
#define A_NUMBERS 0
#define B_NUMBERS (A_NUMBERS + AT_ONCE * (BM + 1) * 16)
#define A_ABOUT (B_NUMBERS + AT_ONCE * (BN + 1) * 16)
#define B_ABOUT (A_ABOUT + AT_ONCE * (BM + 2) * 8)
#define STAGE_BYTES (B_ABOUT + AT_ONCE * (BN + 2) * 8)

DEV void copy8(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from));
#else
  *(uint2 *)to = *(const uint2 *)from;
#endif
}

template <int ROWS> DEV void copy_groups(u8 *numbers, u8 *about, const Groups &from, i64 row0, i64 first) {
  constexpr int threads = (BM / TM) * (BN / TN);
  for (int i = threadIdx.x; i < ROWS * AT_ONCE; i += threads) {
    const int g = i % AT_ONCE, r = i / AT_ONCE;
    const i64 place = (row0 + r) * from.groups + first + g;
    copy16(numbers + (g * (ROWS + 1) + r) * 16, from.numbers + place);
    copy8(about + (g * (ROWS + 2) + r) * 8, from.about + place);
  }
}

DEV void load_stage(u8 *s, const Grouped &job, i64 batch, i64 row, i64 column, int stage) {
  copy_groups<BM>(s + A_NUMBERS, s + A_ABOUT, job.a, batch * job.a.rows + row, (i64)stage * AT_ONCE);
  copy_groups<BN>(s + B_NUMBERS, s + B_ABOUT, job.b, batch * job.b.rows + column, (i64)stage * AT_ONCE);
  end_of_stage();
}

extern "C" __global__ void __launch_bounds__((BM / TM) * (BN / TN), MIN_CTAS) grouped(const __grid_constant__ Grouped job) {
  extern __shared__ __align__(128) u8 shared[];
  const i64 tiles_m = (job.m + BM - 1) / BM, tiles_n = (job.n + BN - 1) / BN, band = 8;
  const i64 in_band = band * tiles_n, g0 = blockIdx.x / in_band, rows = min(band, tiles_m - g0 * band);
  const i64 row0 = (g0 * band + blockIdx.x % in_band % rows) * BM, column0 = blockIdx.x % in_band / rows * BN;
  const i64 batch = blockIdx.y + (i64)blockIdx.z * gridDim.y;
  if (batch >= job.batch) return;
  const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
  const int stage_blocks = AT_ONCE / GROUPS, stages = (job.blocks + stage_blocks - 1) / stage_blocks;
#define AT_ROW(i) (ty * TM + (i))
#define AT_COLUMN(j) (tx + (j) * (BN / TN))
#define ROW(i) (row0 + AT_ROW(i))
#define COLUMN(j) (column0 + AT_COLUMN(j))
#define ELEMENT(i, j) ((batch * job.m + ROW(i)) * job.n + COLUMN(j))
  double acc[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) acc[i][j] = ROW(i) < job.m && COLUMN(j) < job.n ? first_c(job, ELEMENT(i, j)) : 0;

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) load_stage(shared + s * STAGE_BYTES, job, batch, row0, column0, s);
    else end_of_stage();
  }
  int block = 0;
  for (int stage = 0; stage < stages; stage++) {
    wait_for_stage();
    __syncthreads();
    if (stage + STAGES - 1 < stages)
      load_stage(shared + (stage + STAGES - 1) % STAGES * STAGE_BYTES, job, batch, row0, column0, stage + STAGES - 1);
    else end_of_stage();
    const u8 *s = shared + stage % STAGES * STAGE_BYTES;
#pragma unroll 1
    for (int q = 0; q < stage_blocks && block < job.blocks; q++, block++) {
      int emax[TM][TN];
      double m[TM][TN];
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) emax[i][j] = BOTTOM;
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const uint2 *of_a = (const uint2 *)(s + A_ABOUT) + (q * GROUPS + g) * (BM + 2);
        const uint2 *of_b = (const uint2 *)(s + B_ABOUT) + (q * GROUPS + g) * (BN + 2);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) emax[i][j] = max(emax[i][j], group_exponent(of_a[AT_ROW(i)], of_b[AT_COLUMN(j)]));
      }
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
          m[i][j] = magic(emax[i][j], acc[i][j], job.field);
          acc[i][j] = cut_c(acc[i][j], m[i][j]);
        }
#pragma unroll 1  // more at once would not fit in registers
      for (int g = 0; g < GROUPS; g++) {
        const uint4 *a = (const uint4 *)(s + A_NUMBERS) + (q * GROUPS + g) * (BM + 1);
        const uint4 *b = (const uint4 *)(s + B_NUMBERS) + (q * GROUPS + g) * (BN + 1);
        const uint2 *of_a = (const uint2 *)(s + A_ABOUT) + (q * GROUPS + g) * (BM + 2);
        const uint2 *of_b = (const uint2 *)(s + B_ABOUT) + (q * GROUPS + g) * (BN + 2);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) {
            const int sum = group_sum(a[AT_ROW(i)], b[AT_COLUMN(j)]);
            acc[i][j] = __dadd_rn(acc[i][j], cut_group(sum, of_a[AT_ROW(i)], of_b[AT_COLUMN(j)], m[i][j]));
          }
      }
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = after_block(acc[i][j], job, ELEMENT(i, j), block);
    }
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++)
      if (ROW(i) < job.m && COLUMN(j) < job.n) store_code(job.d, ELEMENT(i, j), O::BYTES(), encode_double(unscaled(acc[i][j])));
}
