// What fabsum.cuh is made of: its arguments, barriers and copies, tensor instructions, and the outer additions.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define ROW_BYTES 128
#define A_TILE (BM * ROW_BYTES)
#define B_TILE (BN * ROW_BYTES)
#define R (BM * BN / 256)  // accumulator registers of a thread
#if WIDE_SUM
typedef double Sum;
#else
typedef float Sum;
#endif

struct __align__(64) Map {
  u8 bytes[128];
};

struct Product {
  Map a[3], b[3];
  const float *c;
  float *d;
  i64 m, n, k;
  int phases, which_a[6], which_b[6];
  int shift;           // 2^29: not a literal, so that one instruction multiplies
  const u32 *largest;  // largest |a| and |b| of the last phase, float bits
};

// Where shared memory begins, in a register: the compiler would otherwise work it out again at every use.
__device__ __forceinline__ u32 shared_base(const void *p) {
  u32 base;
  asm volatile("mov.u32 %0, %1;" : "=r"(base) : "r"((u32)__cvta_generic_to_shared(p)));
  return base;
}

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra READY;\nbra AGAIN;\nREADY:\n}"
      ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void fetch(u32 to, const Map *map, int k, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
}

// Rows of 128 bytes along k with the 128-byte swizzle: 1,024 bytes from one eight rows to the next.
__device__ __forceinline__ u64 descriptor(u32 at) {
  return (u64)((at & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// The columns of a tile along n: as rows of 128 bytes along k, or as strips of BK columns, BK rows of 128 bytes along n each.
#if B_ALONG_N
#define STRIP (BK * ROW_BYTES)
#define B_STEP ((16 * ROW_BYTES) >> 4)  // from one instruction's k to the next, in units of a descriptor
__device__ __forceinline__ void fetch_b(u32 to, const Map *map, int k, int column, u32 barrier) {
#pragma unroll
  for (int i = 0; i < BN / BK; i++) fetch(to + i * STRIP, map, column + i * BK, k, barrier);
}
__device__ __forceinline__ u64 descriptor_b(u32 at) { return descriptor(at) ^ (u64)1 << 16 | (u64)(STRIP >> 4) << 16; }
#else
#define B_STEP 2
__device__ __forceinline__ void fetch_b(u32 to, const Map *map, int k, int column, u32 barrier) { fetch(to, map, k, column, barrier); }
__device__ __forceinline__ u64 descriptor_b(u32 at) { return descriptor(at); }
#endif

struct Stage {
  int index;
  u32 parity;
};

__device__ __forceinline__ void next(Stage &s) {
  if (++s.index == STAGES) s.index = 0, s.parity ^= 1;
}

// Where the stages' tiles and barriers are in shared memory.
struct Room {
  u32 a, b, full, empty;
};

__device__ __forceinline__ Room room_of(const void *shared) {
  const u32 a = shared_base(shared), b = a + STAGES * A_TILE, full = b + STAGES * B_TILE;
  return {a, b, full, full + 8 * STAGES};
}

// One thread's: `readers` say each time that a stage may be overwritten.
__device__ __forceinline__ void begin_barriers(const Room &room, int readers) {
  for (int s = 0; s < STAGES; s++) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(room.full + 8 * s));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(room.empty + 8 * s), "r"(readers));
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The first row and column of a block's tile: 2048 rows before the next columns, about as many as those of all blocks at once.
struct Corner {
  int row, column;
};

__device__ __forceinline__ Corner corner_of(const Product &p) {
  const i64 down = (p.m + BM - 1) / BM, across = (p.n + BN - 1) / BN, group = 2048 / BM;
  const i64 in_group = group * across, g = blockIdx.x / in_group, rows = min(group, down - g * group);
  return {(int)((g * group + blockIdx.x % in_group % rows) * BM), (int)(blockIdx.x % in_group / rows * BN)};
}

// The producer: every phase's tiles along k, as stages become free.
__device__ __forceinline__ void bring(const Product &p, const Room &room, const Corner &corner, int tiles) {
  Stage s = {0, 1};
  for (int phase = 0; phase < p.phases; phase++)
    for (int t = 0; t < tiles; t++, next(s)) {
      const u32 full = room.full + 8 * s.index;
      wait(room.empty + 8 * s.index, s.parity);
      expect(full, A_TILE + B_TILE);
      fetch(room.a + s.index * A_TILE, p.a + p.which_a[phase], t * BK, corner.row, full);
      fetch_b(room.b + s.index * B_TILE, p.b + p.which_b[phase], t * BK, corner.column, full);
    }
}

// Keeps the compiler from moving accumulators across the start or the end of an instruction.
__device__ __forceinline__ void hold(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ void begin(float (&d)[R]) {
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING> __device__ __forceinline__ void finish(float (&d)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  hold(d);
}

// Every CONVERTED-th sum takes the slow conversion unit's way, unscaled: the unit would otherwise be idle.
__device__ __forceinline__ constexpr bool converted(int i) { return i % CONVERTED == CONVERTED - 1; }

// Floats are converted and added in PTX: CuPy compiles with -ftz=true, which would lose their subnormals, and no copy of an
// accumulator may stand where the tensor core still writes it.
#if WIDE_SUM
__device__ __forceinline__ Sum widened(float x) {
  Sum wide;
  asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x));
  return wide;
}

// 2^-896 x: x's bits with three more of exponent, subnormals and zeros too, so that one multiplication by 2^29 and one mask
// make it without the slow conversion unit. Infinities and NaN are the caller's to exclude.
__device__ __forceinline__ Sum scaled(float x, int shift) {
  Sum wide;
  asm("{\n.reg .b32 x, low, high;\n.reg .b64 bits;\nmov.b32 x, %1;\nmul.wide.s32 bits, x, %2;\n"
      "mov.b64 {low, high}, bits;\nand.b32 high, high, 0x8FFFFFFF;\nmov.b64 %0, {low, high};\n}"
      : "=d"(wide) : "f"(x), "r"(shift));
  return wide;
}

__device__ __forceinline__ Sum sum(Sum x, float y, bool as_scaled, int shift) {
  return x + (as_scaled ? scaled(y, shift) : widened(y));
}

__device__ __forceinline__ float result(Sum x, Sum up_by) {
  float narrow;
  x *= up_by;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(narrow) : "d"(x));
  return x == x ? narrow : __int_as_float(0x7FFFFFFF);
}
#else
__device__ __forceinline__ Sum widened(float x) { return x; }

__device__ __forceinline__ Sum sum(Sum x, float y, bool, int) {
  asm(ADD " %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}

__device__ __forceinline__ float result(Sum x, Sum) { return x; }
#endif

// With small blocks the two warpgroups take turns: one adds up while the other has the tensor cores.
__device__ __forceinline__ void take_turn(int me) {
#if TURNS
  asm volatile("bar.sync %0, 256;" ::"r"(1 + me) : "memory");
#endif
}

__device__ __forceinline__ void give_turn(int me) {
#if TURNS
  asm volatile("bar.arrive %0, 256;" ::"r"(2 - me) : "memory");
#endif
}
