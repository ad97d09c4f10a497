// What kernels/ballast.cuh has to know of an operand: how large its numbers are, and which there are. Stands before it, with its words.

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
#define CHUNKS 8              // of 16 bytes along k in a stage
#define STAGE_BLOCKS (CHUNKS * PER_CHUNK)

struct Stage {
  float size;  // no row of 32 is longer (as a vector), in the places of a stage
  int top;     // nor has a number of a larger exponent
};

struct Survey {
  const u16 *codes;  // (rows, pitch)
  short *tops;       // (groups, pitch): the largest exponent of 32 rows, at each place
  Stage *stages;     // (stages, groups)
  u32 *facts;        // 1: infinities or NaN, 2: positive numbers, 4: negative numbers
  i64 rows, pitch, groups, stage_count;
};

// The exponents of two numbers.
DEV u32 exponents_of(u32 pair) {
  const u32 magnitudes = pair & 0x7FFF7FFF, fields = magnitudes >> MB & (0x7FFF >> MB) * 0x10001u;
  const u32 e = __viaddmax_s16x2(fields, (u32)(-BIAS & 0xFFFF) * 0x10001u, (u32)(1 - BIAS & 0xFFFF) * 0x10001u);
  const u32 numbers = (magnitudes + 0x7FFF7FFF >> 15 & 0x10001u) * 0xFFFF;  // all bits of what is not zero
  return (e & numbers) | ((u32)(NONE & 0xFFFF) * 0x10001u & ~numbers);
}

// At least the square of a number: fp16's exactly, but for the rounding, which `longest` makes good.
DEV float square_of(u32 magnitude) {
  const int field = (int)(magnitude >> MB), last = max(field, 1) - BIAS - MB;
  const float x = (float)(int)((magnitude & ((1 << MB) - 1)) | (field ? 1 << MB : 0)) * __uint_as_float((u32)(max(last, -126) + 127) << 23);
  return x * x;
}

// What is known of an operand. A warp takes a stage of 32 rows.
extern "C" __global__ void survey(const __grid_constant__ Survey p) {
  const i64 group = blockIdx.x, row = group * 32 + threadIdx.x % 32;
  for (i64 stage = blockIdx.y * 8 + threadIdx.x / 32; stage < p.stage_count; stage += (i64)gridDim.y * 8) {
    const int lane = threadIdx.x % 32, pairs = (int)min((i64)CHUNKS * 4, (p.pitch - stage * CHUNKS * 8) / 2);
    int most = NONE;
    u32 facts = 0, mine = 0;
    float square = 0;
    for (int i = 0; i < pairs; i++) {
      const u32 pair = row < p.rows ? ((const u32 *)(p.codes + row * p.pitch + stage * CHUNKS * 8))[i] : 0, exponents = exponents_of(pair);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 code = pair >> 16 * half & 0xFFFF, magnitude = code & 0x7FFF;
        if (magnitude >= INF_CODE) facts |= 1;
        if (magnitude) facts |= code >> 15 ? 4 : 2;
        square += square_of(magnitude);
      }
      const int first = __reduce_max_sync(FULL, (int)(short)exponents), second = __reduce_max_sync(FULL, (int)exponents >> 16);
      most = max(most, max(first, second));
      if (lane == i) mine = (u32)(first & 0xFFFF) | (u32)second << 16;
    }
    if (lane < pairs) ((u32 *)(p.tops + group * p.pitch + stage * CHUNKS * 8))[lane] = mine;
    const float longest = sqrtf(square * 1.001f + 0x1p-100f);  // squares below float32's normal numbers may be lost
    const int bits = __reduce_max_sync(FULL, (int)__float_as_uint(longest));
    facts = __reduce_or_sync(FULL, facts);
    if (threadIdx.x % 32 == 0) {
      Stage found = {__uint_as_float((u32)bits), most};
      p.stages[stage * p.groups + group] = found;
      if (facts & ~*(volatile u32 *)p.facts) atomicOr(p.facts, facts);
    }
  }
}
