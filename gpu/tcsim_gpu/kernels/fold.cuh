// Block scales folded into bfloat16 operands, the facts that a certificate needs, and the certificate itself:
// `tcsim_gpu.certificates` says what is computed and why it suffices. A chunk is 64 products.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define EMPTY 100000  // exponents that no number has: of a chunk or a row without numbers
#define SPAN 16       // chunks that have one bound together

struct Fold {
  const u8 *codes, *scales;
  // of each of 256 codes: value (its upper 16 bits hold it) and, below, the exponent with which it aligns; last place (EMPTY of zeros)
  const int2 *table, *scale_table;
  u16 *out;                         // (rows, pitch)
  double *norm;                     // (chunks, rows): sum of squares
  int *low, *high;                  // (chunks, rows): the last place of its numbers, the largest exponent they align by
  u32 *bad;                         // of a row: something is no bfloat16 number
  i64 row_step, k_step, scale_row, scale_k, rows, k, pitch;
  int scale_block, grouped;
};

__device__ __forceinline__ float value_in(int2 entry) { return __uint_as_float((u32)entry.x & 0xFFFF0000); }
__device__ __forceinline__ int exponent_in(int2 entry) { return (short)entry.x; }

// The codes of 64 rows by 64 k, 16 at once where they lie side by side at multiples of 16.
__device__ __forceinline__ void load(const Fold &p, u8 (&tile)[64][80], i64 row0, i64 k0) {
  const bool whole = row0 + 64 <= p.rows && k0 + 64 <= p.k && !((u64)p.codes & 15);
  const int x = threadIdx.x / 4, y = threadIdx.x % 4 * 16;
  if (whole && p.k_step == 1 && p.row_step % 16 == 0) {
    *(uint4 *)&tile[x][y] = *(const uint4 *)(p.codes + (row0 + x) * p.row_step + k0 + y);
  } else if (whole && p.row_step == 1 && p.k_step % 16 == 0) {
    uint4 v = *(const uint4 *)(p.codes + (k0 + x) * p.k_step + row0 + y);
#pragma unroll
    for (int i = 0; i < 16; i++) tile[y + i][x] = (u8)((i < 4 ? v.x : i < 8 ? v.y : i < 12 ? v.z : v.w) >> i % 4 * 8);
  } else {
    for (int i = threadIdx.x; i < 64 * 64; i += 256) {
      const int r = p.row_step == 1 ? i % 64 : i / 64, j = p.row_step == 1 ? i / 64 : i % 64;
      tile[r][j] = row0 + r < p.rows && k0 + j < p.k ? p.codes[(row0 + r) * p.row_step + (k0 + j) * p.k_step] : 0;
    }
  }
}

// A thread folds 16 codes of a row, which share a scale. The last place of a product is the sum of its factors', and the sum of
// squares is taken before the scale multiplies it.
extern "C" __global__ void __launch_bounds__(256) fold(const __grid_constant__ Fold p) {
  __shared__ __align__(16) u8 tile[64][80];
  __shared__ int2 table[256];
  const i64 k0 = (i64)blockIdx.x * 64, row0 = (i64)blockIdx.y * 64;
  const int r = threadIdx.x / 4, j0 = threadIdx.x % 4 * 16;
  const i64 row = row0 + r;
  int code = 0;  // asked for first: what it leads to is the longest way
  if (row < p.rows && k0 + j0 < p.k) code = p.scales[row * p.scale_row + (k0 + j0) / p.scale_block * p.scale_k];
  table[threadIdx.x] = p.table[threadIdx.x];
  load(p, tile, row0, k0);
  const int2 by = p.scale_table[code];
  __syncthreads();
  const float scale = value_in(by);
  const uint4 codes = *(const uint4 *)&tile[r][j0];
  const u32 packed[4] = {codes.x, codes.y, codes.z, codes.w};
  float squares = 0;
  int low = EMPTY, high = -EMPTY;
  u32 rest = 0, most = 0, least = 0xFFFFFFFF, words[8];
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int2 of = table[packed[i / 4] >> i % 4 * 8 & 0xFF];
    const float x = value_in(of);
    const u32 bits = __float_as_uint(x * scale), size = bits & 0x7FFFFFFF;
    words[i / 2] = i % 2 ? words[i / 2] | (bits & 0xFFFF0000) : bits >> 16;
    rest |= bits & 0xFFFF;
    most = max(most, size);
    squares = fmaf(x, x, squares);
    low = min(low, of.y);
    if (of.y != EMPTY) least = min(least, size), high = max(high, exponent_in(of));
  }
  const bool some = low != EMPTY && by.y != EMPTY;
  int bad = most >= 0x7F800000 || rest || (some && least < 0x00800000);
  double norm = some ? (double)squares * ((double)scale * (double)scale) : 0;
  high = some ? exponent_in(by) + (p.grouped ? 0 : high) : -EMPTY;
  low = some ? low + by.y : EMPTY;
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    norm += __shfl_xor_sync(0xFFFFFFFF, norm, step);
    low = min(low, __shfl_xor_sync(0xFFFFFFFF, low, step));
    high = max(high, __shfl_xor_sync(0xFFFFFFFF, high, step));
    bad |= __shfl_xor_sync(0xFFFFFFFF, bad, step);
  }
  if (row >= p.rows) return;
  uint4 *to = (uint4 *)(p.out + row * p.pitch + k0 + j0);
  to[0] = make_uint4(words[0], words[1], words[2], words[3]);
  to[1] = make_uint4(words[4], words[5], words[6], words[7]);
  if (threadIdx.x % 4) return;
  const i64 at = (i64)blockIdx.x * p.rows + row;
  p.norm[at] = norm, p.low[at] = low, p.high[at] = high;
  if (bad) p.bad[row] = 1;
}

struct Facts {
  const double *norm;
  const int *low, *high;
  const u32 *bad;
  float *excess;  // (chunks, rows): log2 of a chunk's norm over its last place
  float *spans;   // (spans, rows): the largest of SPAN chunks
  float *facts;   // (6, rows): excess, spread, reach, size, low, good
  i64 rows, chunks;
};

#define SLACK 0.00390625f  // 2^-8: far above what the logarithms and sums here err by
#define NOTHING -1e9f

// 32 rows a thread block, their chunks shared by eight warps.
extern "C" __global__ void __launch_bounds__(256) facts(const __grid_constant__ Facts p) {
  __shared__ double totals[8][32];
  __shared__ float mosts[8][32];
  __shared__ int lows[8][32], highs[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 row = (i64)blockIdx.x * 32 + lane;
  double total = 0;
  float most = NOTHING;
  int low = EMPTY, high = -EMPTY;
  for (i64 span = warp; span * SPAN < p.chunks && row < p.rows; span += 8) {
    float widest = NOTHING;
#pragma unroll 8
    for (int n = 0; n < SPAN; n++) {
      const i64 t = span * SPAN + n, at = t * p.rows + row;
      if (t >= p.chunks) continue;
      const double norm = p.norm[at];
      const float excess = norm > 0 ? (float)(0.5 * log2(norm)) + SLACK - (float)p.low[at] : NOTHING;
      p.excess[at] = excess;
      widest = fmaxf(widest, excess);
      total += norm;
      low = min(low, p.low[at]), high = max(high, p.high[at]);
    }
    p.spans[span * p.rows + row] = widest;
    most = fmaxf(most, widest);
  }
  totals[warp][lane] = total, mosts[warp][lane] = most, lows[warp][lane] = low, highs[warp][lane] = high;
  __syncthreads();
  if (warp || row >= p.rows) return;
  for (int w = 1; w < 8; w++) {
    total += totals[w][lane];
    most = fmaxf(most, mosts[w][lane]);
    low = min(low, lows[w][lane]), high = max(high, highs[w][lane]);
  }
  const bool any = total > 0;
  const float size = any ? (float)(0.5 * log2(total)) + SLACK : NOTHING;
  p.facts[row] = most;
  p.facts[p.rows + row] = any ? size - (float)low : NOTHING;
  p.facts[2 * p.rows + row] = any ? (float)(high - low) : NOTHING;
  p.facts[3 * p.rows + row] = size;
  p.facts[4 * p.rows + row] = (float)low;
  p.facts[5 * p.rows + row] = p.bad[row] ? 0.0f : 1.0f;
}

struct Certify {
  const float *a, *b;                // facts of rows and columns
  const float *a_excess, *b_excess;  // of their chunks
  const float *a_spans, *b_spans;    // of SPAN chunks
  const u16 *a_codes, *b_codes;      // (rows, pitch): bfloat16
  const u32 *c;
  u64 *count;  // outputs without a certificate, those that only the chunks certify, chunks whose products were added up
  i64 *list;   // the first `room` of the former
  i64 m, n, chunks, pitch, room, offset, most;  // most: so many chunks are added up, about; then nothing is certified by them any more
  i64 enough;       // with more outputs than this without a certificate all are recomputed, and nothing more is asked
  i64 step;         // every so many blocks of rows
  const u64 *seen;  // the counts of a sample, of one in `share` of all outputs; none where none was asked
  i64 share;
  float fraction_bits;
  int pad;
};

__device__ __forceinline__ bool c_fits(u32 code, float size, float reach, float low, float fraction_bits) {
  const u32 magnitude = code & 0x7FFFFFFF;
  if (!magnitude) return true;
  if (magnitude >= 0x7F800000) return false;
  const int field = magnitude >> 23;
  const int last = (field ? field : 1) - 150 + __ffs((magnitude & 0x7FFFFF) | (field ? 1 << 23 : 0)) - 1;
  const float least = fminf(low, (float)last);
  const float top = fmaxf(size, (float)(field ? field - 126 : -125)) + 1;
  return top <= 127 && top - low <= fraction_bits && reach - least <= fraction_bits;
}

// The last place of a bfloat16 number that is neither zero nor subnormal.
__device__ __forceinline__ int last_place(u32 code) { return (int)(code >> 7 & 0xFF) - 134 + __ffs((code & 0x7F) | 0x80) - 1; }

// Whether a chunk's products sum to at most 2^24 of their least last place in magnitude. Up to 2^53 of it the sum here is exact.
__device__ __forceinline__ bool small_sum(const u16 *a, const u16 *b) {
  double sum = 0;
  int low = EMPTY;
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    const u32 x = *(const u32 *)(a + i), y = *(const u32 *)(b + i);
#pragma unroll
    for (int half = 0; half < 32; half += 16) {
      const u32 u = x >> half & 0x7FFF, v = y >> half & 0x7FFF;
      sum += (double)__uint_as_float(u << 16) * (double)__uint_as_float(v << 16);
      low = min(low, u && v ? last_place(u) + last_place(v) : EMPTY);
    }
  }
  return low == EMPTY || sum <= __hiloint2double((low + 24 + 1023) << 20, 0);
}

#define AT_ONCE 4     // chunks that a thread adds up before it says so
#define GIVEN_UP -1

__device__ __forceinline__ i64 so_far(const u64 *count) { return (i64) * (volatile const u64 *)count; }

// Whether all will be recomputed: enough are without a certificate, or a sample says that they will be, or that asking takes too long.
__device__ __forceinline__ bool hopeless(const Certify &p) {
  if (p.seen && ((i64)(p.seen[0] * p.share) > 2 * p.enough || (i64)(p.seen[2] * p.share) > 2 * p.most)) atomicMax(p.count, (u64)p.enough + 1);
  return so_far(p.count) > p.enough;
}

// Whether a thread may add up one more chunk; `added` are those that it has.
__device__ __forceinline__ bool may_add(const Certify &p, int &added) {
  if (added != GIVEN_UP && ++added % AT_ONCE == 0 && ((i64)atomicAdd(p.count + 2, (u64)AT_ONCE) > p.most || so_far(p.count) > p.enough))
    added = GIVEN_UP;
  return added != GIVEN_UP;
}

// Whether all chunks of an output have exact sums: by the norms of SPAN chunks, by those of one, by the products themselves.
__device__ __forceinline__ bool chunks_fit(const Certify &p, i64 i, i64 j, int &added) {
  for (i64 first = 0; first * SPAN < p.chunks; first += 8) {
    u32 wide = 0;  // of eight spans, loaded at once
#pragma unroll
    for (int u = 0; u < 8; u++)
      if ((first + u) * SPAN < p.chunks && p.a_spans[(first + u) * p.m + i] + p.b_spans[(first + u) * p.n + j] > 24) wide |= 1u << u;
    for (int u = 0; wide >> u; u++) {
      if (!(wide >> u & 1)) continue;
      const i64 start = (first + u) * SPAN;
      u32 large = 0;
#pragma unroll
      for (int t = 0; t < SPAN; t++)
        if (start + t < p.chunks && p.a_excess[(start + t) * p.m + i] + p.b_excess[(start + t) * p.n + j] > 24) large |= 1u << t;
      for (int t = 0; large >> t; t++)
        if (large >> t & 1 && !(may_add(p, added) && small_sum(p.a_codes + i * p.pitch + (start + t) * 64, p.b_codes + j * p.pitch + (start + t) * 64)))
          return false;
    }
  }
  return true;
}

__device__ __forceinline__ void leave(const Certify &p, i64 i, i64 j) {
  const u64 at = atomicAdd(p.count, 1ull);
  if ((i64)at < p.room) p.list[at] = p.offset + i * p.n + j;
}

#define ROWS 32  // of a thread block, and 256 columns: lanes of a warp
#define LOW 4    // facts from here on are the worse the smaller

// Outputs that rows and columns do not settle wait for each other, so that whole warps ask about chunks.
extern "C" __global__ void __launch_bounds__(256) certify(const __grid_constant__ Certify p) {
  __shared__ float of_rows[ROWS][8], of_block[8];  // their facts, and the least favourable of each
  __shared__ u16 waiting[ROWS * 256];
  __shared__ u32 asked, settled;
  const i64 column0 = (i64)blockIdx.x * 256, row0 = (i64)blockIdx.y * ROWS * p.step, j = column0 + threadIdx.x;
  const int rows = (int)min((i64)ROWS, p.m - row0);
  if (threadIdx.x == 0) asked = 0, settled = hopeless(p);
  if (threadIdx.x < 6 * ROWS) {  // a warp a fact
    const int fact = threadIdx.x / ROWS, i = threadIdx.x % ROWS;
    const float sign = fact < LOW ? 1.0f : -1.0f, mine = i < rows ? p.a[fact * p.m + row0 + i] : sign * NOTHING;
    of_rows[i][fact] = mine;
    float worst = sign * mine;
#pragma unroll
    for (int step = 1; step < ROWS; step *= 2) worst = fmaxf(worst, __shfl_xor_sync(0xFFFFFFFF, worst, step));
    of_block[fact] = sign * worst;
  }
  __syncthreads();
  if (settled) return;
  if (j < p.n) {
    const float e = p.b[j], s = p.b[p.n + j], r = p.b[2 * p.n + j], z = p.b[3 * p.n + j], l = p.b[4 * p.n + j], good = p.b[5 * p.n + j];
    const auto sure_of = [&](const float *a) {
      return (good * a[5] > 0) & (s + a[1] <= p.fraction_bits) & (r + a[2] <= p.fraction_bits) & (l + a[LOW] >= -149) & (z + a[3] <= 127);
    };
    const bool all = sure_of(of_block) && !p.c;
    if (!all || e + of_block[0] > 24) {
      for (int i = 0; i < rows; i++) {
        const float *a = of_rows[i], low = l + a[LOW];
        bool sure = all || sure_of(a);
        if (p.c) sure = sure && c_fits(p.c[(row0 + i) * p.n + j], z + a[3], r + a[2] + low, low, p.fraction_bits);
        if (sure & (e + a[0] <= 24)) continue;
        if (sure) waiting[atomicAdd(&asked, 1u)] = (u16)(i * 256 + threadIdx.x);
        else leave(p, row0 + i, j);
      }
    }
  }
  __syncthreads();
  u32 by_chunks = 0;
  int added = so_far(p.count + 2) > p.most ? GIVEN_UP : 0;
  for (u32 at = threadIdx.x; at < asked; at += 256) {
    const i64 row = row0 + waiting[at] / 256, column = column0 + waiting[at] % 256;
    if (added != GIVEN_UP && chunks_fit(p, row, column, added)) by_chunks++;
    else leave(p, row, column);
  }
#ifdef __CUDACC__
  by_chunks = __reduce_add_sync(0xFFFFFFFF, by_chunks);
  if (threadIdx.x % 32) return;
#endif
  if (by_chunks) atomicAdd(p.count + 1, (u64)by_chunks);
}
