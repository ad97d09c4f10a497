// The unit's own GEMM where codes of 32 bits of b lie along n: D turned, D^T = C^T + B^T A^T.
//
// A tensor instruction takes such codes from shared memory along k alone, but its first operand from registers too. So columns of b
// are its rows here: each of two warpgroups owns 64, and reads their codes for the next 8 products while the tensor core has these.
//
// The host defines what fabsum.cuh asks for, with CHAINED and B_ALONG_N, and mma(d, a, b), a in registers.
//
// Begins with fabsum_sums.cuh.

#define PRODUCTS 8          // of an instruction
#define STEPS (BK / PRODUCTS)
#define STEP_BYTES (PRODUCTS * ROW_BYTES)

// Where a lane's four codes of an instruction lie in a stage: columns g and g + 8, products t and t + 4, with g = lane / 4 and t = lane % 4
// (PTX ISA, the first operand of wgmma m64n256k8). Lanes of g >= 4 read product t + 4 first: all 32 then read from different banks.
struct Places {
  u32 first, other;
  bool crossed;
};

__device__ __forceinline__ Places places_of(int me, int warp, int lane) {
  const int g = lane / 4, column = warp % 2 * 16 + g;
  const bool crossed = g >= 4;
  const int k = lane % 4 + (crossed ? 4 : 0), other = k ^ 4;
  const u32 strip = (u32)(me * 2 + warp / 2) * STRIP;
  return {strip + k * ROW_BYTES + ((column * 4) ^ (k << 4)), strip + other * ROW_BYTES + ((column * 4) ^ (other << 4)), crossed};
}

__device__ __forceinline__ u32 code_at(u32 at) {
  u32 code;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(code) : "r"(at) : "memory");
  return code;
}

__device__ __forceinline__ void read(const Places &at, u32 from, u32 (&x)[4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const u32 one = code_at((from + at.first) ^ (half * 32)), two = code_at((from + at.other) ^ (half * 32));
    x[half] = at.crossed ? two : one;
    x[half + 2] = at.crossed ? one : two;
  }
}

// x of the lane whose number differs by these bits. In PTX, as in fabsum.cuh.
__device__ __forceinline__ float of_lane(float x, int bits) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(bits));
  return y;
}

// Two lanes that differ by these bits: the one keeps x and takes the other's for y, the other the reverse.
__device__ __forceinline__ void exchange(float &x, float &y, int bits, bool second) {
  const float other = of_lane(second ? x : y, bits);
  if (second) x = other;
  else y = other;
}

// A warp's 16 columns: four lanes of neighbouring columns exchange four rows' values, so that each stores four columns of one row.
__device__ __forceinline__ void put(const Product &p, int row0, int column0, int lane, const float (&x)[R]) {
  const int g = lane / 4, r = row0 + lane % 4 * 2 + g % 2 + g % 4 / 2 * 8;
#pragma unroll
  for (int i = 0; i < R; i += 8)
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      float v[4] = {x[i + half], x[i + half + 1], x[i + 4 + half], x[i + 5 + half]};  // rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9
      exchange(v[0], v[1], 4, g & 1);
      exchange(v[2], v[3], 4, g & 1);
      exchange(v[0], v[2], 8, g & 2);
      exchange(v[1], v[3], 8, g & 2);
      const int at = r + i * 2, c = column0 + g / 4 * 4 + half * 4;
      if (at < p.m && c < p.n) *(float4 *)(p.d + (i64)at * p.n + c) = make_float4(v[0], v[1], v[2], v[3]);
    }
}

// The same where rows do not begin at multiples of 16 bytes.
__device__ __forceinline__ void put_singly(const Product &p, int row, int column, const float (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    const int c = column + i % 4 / 2 * 8, r = row + i / 4 * 8 + i % 2;
    if (r < p.m && c < p.n) p.d[(i64)r * p.n + c] = x[i];
  }
}

extern "C" __global__ void __launch_bounds__(384, 1) turned(const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) u8 shared[];
  const Room room = room_of(shared);
  const Corner corner = corner_of(p);
  const int tiles = (int)((p.k + BK - 1) / BK);
  if (threadIdx.x == 0) begin_barriers(room, 8);
  __syncthreads();

  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) bring(p, room, corner, tiles);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int me = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const Places at = places_of(me, warp, lane);
  const u64 rows = descriptor(room.a);
  const int column = corner.column + me * 64 + warp * 16 + lane / 4, row = corner.row + lane % 4 * 2;
  float acc[R];
#pragma unroll
  for (int i = 0; i < R; i++) {
    const int c = column + i % 4 / 2 * 8, r = row + i / 4 * 8 + i % 2;
    acc[i] = p.c && r < p.m && c < p.n ? p.c[(i64)r * p.n + c] : 0.0f;
  }

  u32 x[2][4];
  Stage s = {0, 0};
  wait(room.full, 0);
  read(at, room.b, x[0]);
  int before = -1;
#pragma unroll 1
  for (int t = 0; t < tiles; t++) {
    const u32 from = room.b + s.index * B_TILE;
    const u64 a = rows + (u32)(s.index * (A_TILE >> 4));
    const int mine = s.index;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      begin(acc);
      mma(acc, x[i % 2], a + 2 * i);
      commit();
      finish<1>(acc);  // the one before: its codes may be overwritten
      if (i == 0 && before >= 0 && lane == 0) arrive(room.empty + 8 * before);
      if (i + 1 < STEPS) {
        read(at, from + (i + 1) * STEP_BYTES, x[(i + 1) % 2]);
      } else if (t + 1 < tiles) {
        next(s);
        wait(room.full + 8 * s.index, s.parity);
        read(at, room.b + s.index * B_TILE, x[0]);
      }
    }
    before = mine;
  }
  finish<0>(acc);

  if (p.n % 4 == 0) put(p, corner.row, corner.column + me * 64 + warp * 16, lane, acc);
  else put_singly(p, row, column, acc);
}
