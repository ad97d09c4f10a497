// Block scales folded into bfloat16 operands, the facts that a certificate needs, and the certificate itself:
// `tcsim_gpu.certificates` says what is computed and why it suffices. A chunk is 64 products.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define EMPTY 100000  // exponents that no number has: of a chunk or a row without numbers

struct Fold {
  const u8 *codes, *scales;
  const float *value, *scale_value;         // of each of 256 codes
  const int *exponent, *scale_exponent;     // with which it aligns; NaN in `value` where it is none
  u16 *out;                                 // (rows, pitch)
  double *norm;                             // (chunks, rows): sum of squares
  int *low, *high;                          // (chunks, rows): the last place of its numbers, the largest exponent they align by
  u32 *bad;                                 // of a row: something is no bfloat16 number
  i64 row_step, k_step, scale_row, scale_k, rows, k, pitch;
  int scale_block, grouped;
};

__device__ __forceinline__ int last_place(u32 bits) {
  return (int)(bits >> 23 & 0xFF) - 150 + __ffs((bits & 0x7FFFFF) | 1 << 23) - 1;
}

extern "C" __global__ void __launch_bounds__(256) fold(const __grid_constant__ Fold p) {
  __shared__ u8 tile[64][80];
  __shared__ float value[256];
  __shared__ int exponent[256];
  const i64 k0 = (i64)blockIdx.x * 64, row0 = (i64)blockIdx.y * 64;
  value[threadIdx.x] = p.value[threadIdx.x];
  exponent[threadIdx.x] = p.exponent[threadIdx.x];
  for (int i = threadIdx.x; i < 64 * 64; i += 256) {
    const int r = p.row_step == 1 ? i % 64 : i / 64, j = p.row_step == 1 ? i / 64 : i % 64;
    tile[r][j] = row0 + r < p.rows && k0 + j < p.k ? p.codes[(row0 + r) * p.row_step + (k0 + j) * p.k_step] : 0;
  }
  __syncthreads();
  const int r = threadIdx.x / 4, j0 = threadIdx.x % 4 * 16;
  const i64 row = row0 + r;
  double norm = 0;
  int low = EMPTY, high = -EMPTY, bad = 0;
  u16 folded[16];
  const bool mine = row < p.rows && k0 + j0 < p.k;
  int code = 0;
  if (mine) code = p.scales[row * p.scale_row + (k0 + j0) / p.scale_block * p.scale_k];
  const float scale = p.scale_value[code];
  const int by = p.scale_exponent[code];
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int c = tile[r][j0 + i];
    const float x = value[c], v = x * scale;
    const u32 bits = __float_as_uint(v), size = bits & 0x7FFFFFFF;
    const bool inside = mine && k0 + j0 + i < p.k;
    const bool nothing = !(__float_as_uint(x) << 1) || !(__float_as_uint(scale) << 1);
    const bool finite = (__float_as_uint(x) << 1 >> 24) != 0xFF && (__float_as_uint(scale) << 1 >> 24) != 0xFF;
    folded[i] = 0;
    if (!inside || (nothing && finite)) continue;
    folded[i] = (u16)(bits >> 16);
    if (!finite || size >= 0x7F800000 || size < 0x00800000 || (bits & 0xFFFF)) {
      bad = 1;
      continue;
    }
    norm += (double)v * v;
    low = min(low, last_place(bits));
    high = max(high, by + (p.grouped ? 0 : exponent[c]));
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    norm += __shfl_xor_sync(0xFFFFFFFF, norm, step);
    low = min(low, __shfl_xor_sync(0xFFFFFFFF, low, step));
    high = max(high, __shfl_xor_sync(0xFFFFFFFF, high, step));
    bad |= __shfl_xor_sync(0xFFFFFFFF, bad, step);
  }
  if (row >= p.rows) return;
  uint4 *to = (uint4 *)(p.out + row * p.pitch + k0 + j0);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = folded[8 * h + 2 * i] | (u32)folded[8 * h + 2 * i + 1] << 16;
    to[h] = make_uint4(w[0], w[1], w[2], w[3]);
  }
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
  for (i64 t = warp; t < p.chunks && row < p.rows; t += 8) {
    const i64 at = t * p.rows + row;
    const double norm = p.norm[at];
    const float excess = norm > 0 ? (float)(0.5 * log2(norm)) + SLACK - (float)p.low[at] : NOTHING;
    p.excess[at] = excess;
    most = fmaxf(most, excess);
    total += norm;
    low = min(low, p.low[at]), high = max(high, p.high[at]);
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
  const u32 *c;
  u64 *count;  // outputs without a certificate, and those that only the chunks certify
  i64 *list;   // the first `room` of the former
  i64 m, n, chunks, room, offset;
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
  return top <= 127 && fmaxf(top, reach) - least <= fraction_bits;
}

extern "C" __global__ void __launch_bounds__(256) certify(const __grid_constant__ Certify p) {
  const i64 j = (i64)blockIdx.x * 256 + threadIdx.x;
  if (j >= p.n) return;
  const float e = p.b[j], s = p.b[p.n + j], r = p.b[2 * p.n + j], z = p.b[3 * p.n + j], l = p.b[4 * p.n + j], good = p.b[5 * p.n + j];
  for (i64 i = (i64)blockIdx.y * 32; i < min(p.m, (i64)blockIdx.y * 32 + 32); i++) {
    const float size = z + p.a[3 * p.m + i], low = l + p.a[4 * p.m + i], reach = r + p.a[2 * p.m + i];
    bool sure = good * p.a[5 * p.m + i] > 0 && s + p.a[p.m + i] <= p.fraction_bits && reach <= p.fraction_bits && low >= -149 && size <= 127;
    if (sure && p.c) sure = c_fits(p.c[i * p.n + j], size, reach + low, low, p.fraction_bits);
    if (sure && e + p.a[i] > 24) {
      for (i64 t = 0; t < p.chunks && sure; t++) sure = p.a_excess[t * p.m + i] + p.b_excess[t * p.n + j] <= 24;
      if (sure) atomicAdd(p.count + 1, 1ull);
    }
    if (!sure) {
      const u64 at = atomicAdd(p.count, 1ull);
      if ((i64)at < p.room) p.list[at] = p.offset + i * p.n + j;
    }
  }
}
