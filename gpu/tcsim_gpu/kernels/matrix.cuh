// A GEMM of bare matrix instructions: one warp (mma.sync) or four (wgmma, tcgen05) walk one tile along k, c in
// the accumulators. Operands are codes with any strides; what lies outside the matrices is zero.
//
// The host defines M N K of the instruction, A_BYTES B_BYTES D_BYTES (of a code), A_SHIFT B_SHIFT (of a narrow code in its
// byte), A_REGS B_REGS D_REGS, the register types R_AB R_D, PACK_D (results in a register), SUM (of floats outside the unit, 0
// for none) with SIGNED_ZERO and NAN_CODE, and step(d, a, b).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Product {
  const u8 *a, *b, *c, *scale_a, *scale_b;
  void *d;
  const i64 *bounds;
  i64 a_batch, a_row, a_k, b_batch, b_k, b_column, sa_batch, sa_row, sa_k, sb_batch, sb_k, sb_column;
  i64 batch, m, n;
  int segments, c_first;
};

__device__ __forceinline__ u64 code_at(const u8 *p, int bytes) {
  return bytes == 1 ? *p : bytes == 2 ? *(const u16 *)p : bytes == 4 ? *(const u32 *)p : *(const u64 *)p;
}

struct Tile {
  i64 row, column, batch;
  int valid;
};

__device__ __forceinline__ u64 a_code(const Product &p, const Tile &t, int row, i64 k, i64 stop) {
  if (!t.valid || t.row + row >= p.m || k >= stop) return 0;
  return code_at(p.a + t.batch * p.a_batch + (t.row + row) * p.a_row + k * p.a_k, A_BYTES) << A_SHIFT;
}

__device__ __forceinline__ u64 b_code(const Product &p, const Tile &t, i64 k, int column, i64 stop) {
  if (!t.valid || t.column + column >= p.n || k >= stop) return 0;
  return code_at(p.b + t.batch * p.b_batch + k * p.b_k + (t.column + column) * p.b_column, B_BYTES) << B_SHIFT;
}

__device__ __forceinline__ Tile tile_number(const Product &p, i64 index) {
  const i64 across = (p.n + N - 1) / N, down = (p.m + M - 1) / M;
  Tile t;
  t.column = index % across * N;
  t.row = index / across % down * M;
  t.batch = index / across / down;
  t.valid = t.batch < p.batch;
  return t;
}

__device__ __forceinline__ i64 d_index(const Product &p, const Tile &t, int row, int column) {
  return (t.batch * p.m + t.row + row) * p.n + t.column + column;
}

__device__ __forceinline__ bool inside(const Product &p, const Tile &t, int row, int column) {
  return t.valid && t.row + row < p.m && t.column + column < p.n;
}

union Bits {
  u64 code;
  u32 word;
  float single;
  double real;
};

// Row and column of result i of a lane.
#if VOLTA
#define D_ROW(i) (D_BYTES == 4 ? (lane & 1) + ((i) & 2) + (lane >= 16 ? 4 : 0) : lane % 4 + (lane >= 16 ? 4 : 0))
#define D_COLUMN(i) (D_BYTES == 4 ? ((i) & 4) + (lane & 2) + ((i) & 1) : (i))
#define WRITES ((lane & 12) == 0)
#elif TENSOR_MEMORY
#define D_ROW(i) (warp_row + lane)
#define D_COLUMN(i) (i)
#define WRITES true
#else
#define D_ROW(i) (warp_row + lane / 4 + 8 * ((i) / 2))
#define D_COLUMN(i) (lane % 4 * 2 + (i) % 2)
#define WRITES true
#endif
#define RESULTS (D_REGS * PACK_D)

__device__ __forceinline__ u64 result_code(const R_D (&d)[D_REGS], int i) {
  Bits x;
  x.code = 0;
#if PACK_D == 2
  return d[i / 2] >> 16 * (i % 2) & 0xFFFF;
#elif D_BYTES == 8
  x.real = d[i];
  return x.code;
#elif D_FLOAT
  x.single = d[i];
  return x.word;
#else
  return D_BYTES == 2 ? (u32)d[i] & 0xFFFF : (u32)d[i];
#endif
}

__device__ __forceinline__ void set_result(R_D (&d)[D_REGS], int i, u64 code) {
  Bits x;
  x.code = code;
#if PACK_D == 2
  d[i / 2] = i % 2 ? (d[i / 2] & 0xFFFFu) | (u32)code << 16 : (d[i / 2] & 0xFFFF0000u) | (u32)(code & 0xFFFF);
#elif D_BYTES == 8
  d[i] = x.real;
#elif D_FLOAT
  d[i] = x.single;
#else
  d[i] = x.word;
#endif
}

// What is added outside the unit: the values of results and of c.
__device__ __forceinline__ double value_of(u64 code) {
  Bits x;
  x.code = code;
#if D_BYTES == 8
  return x.real;
#elif D_BYTES == 2
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)code));
  return f;
#else
  double wide;
  asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x.single));
  return wide;
#endif
}

// In PTX, as above: CuPy compiles with -ftz=true, which would lose subnormals.
__device__ __forceinline__ float narrowed(double x) {
  float narrow;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(narrow) : "d"(x));
  return narrow;
}

// x + y rounded to odd, so that a rounding to fewer bits that follows is the only one. Two numbers of 24 bits whose sum is
// rounded to as many need no such care.
__device__ __forceinline__ double sum_to_odd(double x, double y) {
  const double z = __dadd_rz(x, y);
  const bool inexact = __dadd_rd(x, y) < __dadd_ru(x, y);
  return inexact ? __longlong_as_double(__double_as_longlong(z) | 1) : z;
}

__device__ __forceinline__ double add_outside(double x, double y) {
#if SUM == 16
  u16 h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(sum_to_odd(x, y)));
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
#elif SUM == 32 && D_BYTES == 8
  return narrowed(sum_to_odd(x, y));
#elif SUM == 32
  double wide;
  asm("{\n.reg .f32 x, y;\ncvt.rn.f32.f64 x, %1;\ncvt.rn.f32.f64 y, %2;\nadd.rn.f32 x, x, y;\ncvt.f64.f32 %0, x;\n}"
      : "=d"(wide) : "d"(x), "d"(y));
  return wide;
#else
  return __dadd_rn(x, y);
#endif
}

__device__ __forceinline__ u64 code_of(double x) {
  Bits y;
  y.code = 0;
  if (x == 0 && !SIGNED_ZERO) x = 0;
  if (x != x) return NAN_CODE;
#if D_BYTES == 8
  y.real = x;
#elif D_BYTES == 2
  u16 h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x));
  return h;
#else
  y.single = narrowed(x);
#endif
  return y.code;
}

// The walk of a tile along k, the same for every instruction; `walk(d, start, stop)` accumulates on d.
template <class Walk> __device__ __forceinline__ void compute(const Product &p, const Tile &t, int lane, int warp_row, Walk walk) {
  R_D d[D_REGS];
  u64 c[RESULTS];
#pragma unroll
  for (int i = 0; i < RESULTS; i++)
    c[i] = p.c && inside(p, t, D_ROW(i), D_COLUMN(i)) ? code_at(p.c + d_index(p, t, D_ROW(i), D_COLUMN(i)) * D_BYTES, D_BYTES) : 0;
#pragma unroll
  for (int i = 0; i < D_REGS; i++) d[i] = 0;
#if SUM
  double total[RESULTS];
#pragma unroll
  for (int i = 0; i < RESULTS; i++) total[i] = p.c_first ? value_of(c[i]) : 0;
  for (int s = 0; s < p.segments; s++) {
#pragma unroll
    for (int i = 0; i < D_REGS; i++) d[i] = 0;
    walk(d, p.bounds[s], p.bounds[s + 1]);
#pragma unroll
    for (int i = 0; i < RESULTS; i++) total[i] = add_outside(total[i], value_of(result_code(d, i)));
  }
#pragma unroll
  for (int i = 0; i < RESULTS; i++) c[i] = code_of(p.c && !p.c_first ? add_outside(total[i], value_of(c[i])) : total[i]);
#else
#pragma unroll
  for (int i = 0; i < RESULTS; i++) set_result(d, i, c[i]);
  walk(d, p.bounds[0], p.bounds[p.segments]);
#pragma unroll
  for (int i = 0; i < RESULTS; i++) c[i] = result_code(d, i);
#endif
#pragma unroll
  for (int i = 0; i < RESULTS; i++) {
    if (!WRITES || !inside(p, t, D_ROW(i), D_COLUMN(i))) continue;
    u8 *to = (u8 *)p.d + d_index(p, t, D_ROW(i), D_COLUMN(i)) * D_BYTES;
    if (D_BYTES == 2) *(u16 *)to = (u16)c[i];
    if (D_BYTES == 4) *(u32 *)to = (u32)c[i];
    if (D_BYTES == 8) *(u64 *)to = c[i];
  }
}
