// More of CUDA's words in C++, after on_host.cuh: the threads of a block run side by side, each a context of its own that gives way
// where it waits for others, so that warps may vote, shuffle and multiply together.
#include <ucontext.h>
#include <vector>

#undef __syncthreads

typedef unsigned long long u64;
static inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline u64 atomicAdd(u64 *p, u64 x) { return *p += x, *p - x; }
static inline void atomicMax(u64 *p, u64 x) { *p = x > *p ? x : *p; }

struct int2 {
  int x, y;
};
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int __ffs(unsigned x) { return __builtin_ffs((int)x); }

struct Meeting {  // of a warp's lanes, or of all threads
  int size, arrived = 0;
  u64 turn = 0;
};
static ucontext_t scheduler;
static std::vector<ucontext_t> contexts;
static std::vector<bool> over;
static Meeting everyone, warps[32];
static unsigned now;
static unsigned words_in[32][32][12], words_out[32][32][12];  // of warps and lanes

static void give_way() { swapcontext(&contexts[now], &scheduler); }

// Whether this thread is the last to arrive, after which all go on.
template <class Last> static void meet(Meeting &at, Last last) {
  const u64 turn = at.turn;
  if (++at.arrived == at.size) {
    last();
    at.arrived = 0;
    at.turn++;
  }
  while (at.turn == turn) give_way();
}
static void __syncthreads() { meet(everyone, [] {}); }
static void __syncwarp() { meet(warps[threadIdx.x / 32], [] {}); }

// Every lane's words to all lanes of its warp.
static void together(const unsigned *mine, int count) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  memcpy(words_in[warp][lane], mine, 4 * count);
  meet(warps[warp], [=] { memcpy(words_out[warp], words_in[warp], sizeof words_out[warp]); });
}
static unsigned told(unsigned lane) { return words_out[threadIdx.x / 32][lane][0]; }

template <class T> static T __shfl_sync(unsigned, T x, int lane) {
  together((const unsigned *)&x, 1);
  return (T)told(lane);
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int step) {
  unsigned words[2] = {0, 0};
  memcpy(words, &x, sizeof x);
  together(words, 2);
  memcpy(&x, words_out[threadIdx.x / 32][threadIdx.x % 32 ^ step], sizeof x);
  return x;
}
static int __any_sync(unsigned, int x) {
  together((const unsigned *)&x, 1);
  int any = 0;
  for (int i = 0; i < 32; i++) any |= told(i) != 0;
  return any;
}
template <class T> static T __reduce_max_sync(unsigned, T x) {
  together((const unsigned *)&x, 1);
  for (int i = 0; i < 32; i++) x = max(x, (T)told(i));
  return x;
}
template <class T> static T __reduce_min_sync(unsigned, T x) {
  together((const unsigned *)&x, 1);
  for (int i = 0; i < 32; i++) x = min(x, (T)told(i));
  return x;
}
static unsigned __reduce_or_sync(unsigned, unsigned x) {
  together(&x, 1);
  for (int i = 0; i < 32; i++) x |= told(i);
  return x;
}

#ifdef MB
static double operand_value(unsigned code) {
  const int field = (code & 0x7FFF) >> MB, body = code & ((1 << MB) - 1);
  if (field == INF_CODE >> MB) return body ? NAN : code >> 15 ? -INFINITY : INFINITY;
  const double size = std::ldexp(body + (field ? 1 << MB : 0), (field ? field : 1) - BIAS - MB);
  return code >> 15 ? -size : size;
}

// One output of Hopper's unit: 16 products of numbers of 16 bits and c, 25 bits kept, one rounding toward zero. No operand is infinite
// or NaN: a tensor core's step as kernels/ballast.cuh uses it.
static float hopper_output(const unsigned *a, const unsigned *b, float c) {
  if (!std::isfinite(c)) return c;
  int top = -133;
  double terms[17];
  terms[16] = c;
  if (c != 0) top = max(top, max(std::ilogb(c), -126));
  for (int k = 0; k < 16; k++) {
    const double x = operand_value(a[k]), y = operand_value(b[k]);
    terms[k] = x * y;
    if (terms[k] != 0) top = max(top, max(std::ilogb(x), 1 - BIAS) + max(std::ilogb(y), 1 - BIAS));
  }
  long long sum = 0;
  for (double x : terms) sum += (long long)std::ldexp(x, 25 - top);  // toward zero
  const unsigned long long size = sum < 0 ? -sum : sum;
  int drop = max(0, -149 - (top - 25));
  while (size >> drop >> 24) drop++;
  const float kept = (float)std::ldexp((double)(size >> drop << drop), top - 25);
  return sum < 0 && kept ? -kept : kept;
}

// mma.m16n8k16 with the fragments of the PTX ISA.
static void host_mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, const float (&c)[4]) {
  const unsigned mine[] = {a0, a1, a2, a3, b0, b1};
  together(mine, 6);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    unsigned a[16], b[16];
    for (int k = 0; k < 16; k++) {
      const unsigned *of_a = words_out[warp][row % 8 * 4 + k % 8 / 2], *of_b = words_out[warp][column * 4 + k % 8 / 2];
      a[k] = of_a[row / 8 + k / 8 * 2] >> k % 2 * 16 & 0xFFFF;
      b[k] = of_b[4 + k / 8] >> k % 2 * 16 & 0xFFFF;
    }
    d[i] = hopper_output(a, b, c[i]);
  }
}

#endif

// Every block of a grid in turn, its threads side by side.
template <class Kernel, class Argument> void run_blocks(Kernel kernel, const Argument &argument, const unsigned *grid, unsigned threads) {
  static Kernel work;
  static const Argument *on;
  work = kernel, on = &argument;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads, 1, 1};
  std::vector<std::vector<char>> stacks(threads, std::vector<char>(1 << 17));
  contexts.resize(threads);
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        over.assign(threads, false);
        everyone = Meeting();
        everyone.size = (int)threads;
        for (auto &w : warps) w = Meeting(), w.size = 32;
        for (unsigned t = 0; t < threads; t++) {
          getcontext(&contexts[t]);
          contexts[t].uc_stack.ss_sp = stacks[t].data();
          contexts[t].uc_stack.ss_size = stacks[t].size();
          contexts[t].uc_link = &scheduler;
          makecontext(&contexts[t], (void (*)())(+[] {
            work(*on);
            over[now] = true;
          }), 0);
        }
        for (bool more = true; more;) {
          more = false;
          for (unsigned t = 0; t < threads; t++) {
            if (over[t]) continue;
            more = true;
            now = t;
            threadIdx = {t, 0, 0};
            swapcontext(&scheduler, &contexts[t]);
          }
        }
      }
}
