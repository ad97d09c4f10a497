// CUDA's words in C++, for running a kernel on the host one thread after the other: aligned.cuh and grouped.cuh with a tile of one
// thread, pack.cuh with any number, since its threads share nothing. Rounding modes are those of the floating-point environment.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
#define __syncthreads()

using std::max;
using std::min;

struct Three {
  unsigned x, y, z;
};
static thread_local Three threadIdx, blockIdx, gridDim, blockDim;
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

static inline double with_words(unsigned long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
static inline unsigned long long words_of(double x) {
  unsigned long long bits;
  memcpy(&bits, &x, 8);
  return bits;
}
static inline double __hiloint2double(int high, int low) { return with_words((unsigned long long)(unsigned)high << 32 | (unsigned)low); }
static inline int __double2hiint(double x) { return (int)(words_of(x) >> 32); }
static inline int __double2loint(double x) { return (int)words_of(x); }

template <int MODE> __attribute__((noinline)) double add_with(volatile double x, volatile double y) {
  fesetround(MODE);
  volatile double z = x + y;
  fesetround(FE_TONEAREST);
  return z;
}
template <int MODE> __attribute__((noinline)) double fma_with(volatile double x, volatile double y, volatile double z) {
  fesetround(MODE);
  volatile double w = std::fma(x, y, z);
  fesetround(FE_TONEAREST);
  return w;
}
static inline double __dadd_rn(double x, double y) { return add_with<FE_TONEAREST>(x, y); }
static inline double __dadd_rz(double x, double y) { return add_with<FE_TOWARDZERO>(x, y); }
static inline double __dadd_rd(double x, double y) { return add_with<FE_DOWNWARD>(x, y); }
static inline double __dadd_ru(double x, double y) { return add_with<FE_UPWARD>(x, y); }
static inline double __fma_rn(double x, double y, double z) { return fma_with<FE_TONEAREST>(x, y, z); }
static inline double __fma_rd(double x, double y, double z) { return fma_with<FE_DOWNWARD>(x, y, z); }
static inline double __fma_ru(double x, double y, double z) { return fma_with<FE_UPWARD>(x, y, z); }
static inline double __dmul_rn(double x, double y) { return x * y; }

static inline int __vimax3_s32(int a, int b, int c) { return max(max(a, b), c); }
static inline int __vimin3_s32(int a, int b, int c) { return min(min(a, b), c); }
static inline unsigned __viaddmax_u32(unsigned a, unsigned b, unsigned c) { return max(a + b, c); }
static inline unsigned halves(short low, short high) { return (unsigned)(unsigned short)low | (unsigned)(unsigned short)high << 16; }
static inline unsigned __vmaxs2(unsigned a, unsigned b) {
  return halves(max((short)a, (short)b), max((short)(a >> 16), (short)(b >> 16)));
}
static inline unsigned __viaddmax_s16x2(unsigned a, unsigned b, unsigned c) {
  const unsigned sum = halves((short)((short)a + (short)b), (short)((short)(a >> 16) + (short)(b >> 16)));
  return __vmaxs2(sum, c);
}
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
static inline unsigned atomicAdd(unsigned *p, unsigned x) { return *p += x, *p - x; }
static inline unsigned atomicOr(unsigned *p, unsigned x) { return *p |= x, *p & ~x; }

// Every thread of every block of a grid, in turn.
template <class Kernel, class Argument> void run_grid(Kernel kernel, const Argument &argument, const unsigned *grid, unsigned threads) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads, 1, 1};
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++)
        for (unsigned t = 0; t < threads; t++) {
          blockIdx = {x, y, z};
          threadIdx = {t, 0, 0};
          kernel(argument);
        }
}
