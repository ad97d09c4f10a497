// What kernels/ballast.cuh has to know of an operand: the exponents of its numbers, and which there are. Stands before it, with its words.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#ifdef __CUDACC__
#define DEV __device__ __forceinline__
#else
#define DEV static inline
#endif

#define NONE (-8192)             // the exponent of a zero
#define PER_CHUNK (8 / W)        // blocks in 16 bytes
#define FULL 0xFFFFFFFFu

struct Survey {
  const u16 *codes;  // (rows, pitch)
  u16 *exponents;    // the same shape
  short *tops;       // (blocks, groups): the largest of 32 rows
  u32 *facts;        // 1: infinities or NaN, 2: positive numbers, 4: negative numbers
  i64 rows, pitch, blocks, groups;
};

// Exponents of an operand's numbers, and what is known of them. A warp takes a block of 32 rows.
extern "C" __global__ void survey(const __grid_constant__ Survey p) {
  const i64 group = blockIdx.x, row = group * 32 + threadIdx.x % 32;
  for (i64 block = blockIdx.y * 8 + threadIdx.x / 32; block < p.blocks; block += (i64)gridDim.y * 8) {
    int top = NONE;
    u32 facts = 0;
    if (row < p.rows) {
      const u32 *from = (const u32 *)(p.codes + row * p.pitch + block * W);
      u32 *to = (u32 *)(p.exponents + row * p.pitch + block * W);
#pragma unroll
      for (int i = 0; i < W / 2; i++) {
        const u32 pair = from[i];
        u32 out = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const u32 code = pair >> 16 * half & 0xFFFF, magnitude = code & 0x7FFF;
          const int e = magnitude ? max((int)(magnitude >> MB), 1) - BIAS : NONE;
          top = max(top, e);
          if (magnitude >= INF_CODE) facts |= 1;
          if (magnitude) facts |= code >> 15 ? 4 : 2;
          out |= (u32)(e & 0xFFFF) << 16 * half;
        }
        to[i] = out;
      }
    }
    top = __reduce_max_sync(FULL, top);
    facts = __reduce_or_sync(FULL, facts);
    if (threadIdx.x % 32 == 0) {
      p.tops[block * p.groups + group] = (short)top;
      if (facts & ~*(volatile u32 *)p.facts) atomicOr(p.facts, facts);
    }
  }
}
