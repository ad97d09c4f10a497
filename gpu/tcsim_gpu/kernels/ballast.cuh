// Units whose blocks keep fewer bits than the tensor core here, on that tensor core: fp16 and bf16 of A100, fp16 of V100 on Hopper.
//
// Two more products, +2^s and -2^s with s = e + F' - F, cancel, but align a block of the core's, which keeps F' bits, where the unit
// aligns its own, of largest exponent e and F bits. `ballast.py` has the proof. e is that of an output and a block: an instruction
// serves those of its 16 x 8 outputs that share one, and is repeated for the next e. Where sums of one sign have grown beyond
// every product, all outputs of a warp share one for most of k, or have one of two while they pass a power of two, and how far they
// are from others says for how many blocks nobody need look.
//
// The host defines W, the products of a block in memory (4 or 8), SHIFT = F' - F, LOW and HIGH, the least and the largest e that have
// ballast, of the operands' format MB, BIAS, INF_CODE and TYPE, its name in PTX, and, but for CUDA, what CUDA's words mean.

struct Ballast {
  const u16 *a, *b;                      // (m, pitch), (n, pitch): codes
  const u16 *a_exponents, *b_exponents;  // of the same shapes
  const short *a_tops, *b_tops;          // (blocks, groups)
  const u32 *c;
  u32 *d;
  u64 *count;  // outputs left over; whether to stop
  i64 *list;   // the first `room` of them
  i64 m, n, pitch, blocks, a_groups, b_groups, room, offset;
  i64 limit;  // instructions a tile and block that may be repeated before the emulator is the faster one
  i64 sign;   // of all products: 1 negative, 0 positive, 2 both occur
};

#define TILE 128
#define CHUNKS 4              // of 16 bytes along k in a stage
#define STAGES 3
#define PITCH (TILE + 2)      // rows of a chunk: two more, so that copies of four chunks meet in no bank
#define PLANE (CHUNKS * PITCH * 16)
#define STAGE_BYTES (4 * PLANE)  // codes of a, exponents of a, codes of b, exponents of b
#define STAGE_BLOCKS (CHUNKS * PER_CHUNK)

DEV void copy_or_zeros(void *to, const void *from, bool there) {
#ifdef __CUDACC__
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0));
#else
  if (there) memcpy(to, from, 16);
  else memset(to, 0, 16);
#endif
}

DEV void end_of_stage() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;");
#endif
}

DEV void wait_for_stage() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
#endif
}

// The two factors of the ballast: products 8 and 9 of an instruction of 16, 4 and 5 of one of 8, and zeros in the lanes of others.
struct Pair {
  u32 a, b;
};

// d = c + a·b of a 16 x 8 tile and the ballast, by the tensor core: 16 products where a block has up to 8, 8 where it has up to 4.
DEV void mma(float (&d)[4], u32 a0, u32 a1, u32 b0, const Pair &with, const float (&c)[4]) {
#ifdef __CUDACC__
#if W == 8
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %6}, {%7, %8}, {%9, %10, %11, %12};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(with.a), "r"(b0), "r"(with.b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0 | with.a), "r"(a1 | with.a), "r"(b0 | with.b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
#elif W == 8
  host_mma(d, a0, a1, with.a, with.a, b0, with.b, c);
#else
  host_mma(d, a0 | with.a, a1 | with.a, 0, 0, b0 | with.b, 0, c);
#endif
}

DEV void copy_side(u8 *to, const u16 *from, i64 row0, i64 rows, i64 pitch, i64 chunk0) {
#pragma unroll
  for (int r = 0; r < CHUNKS * TILE / 256; r++) {
    const int i = r * 256 + threadIdx.x, chunk = i % CHUNKS, row = i / CHUNKS;
    const bool there = row0 + row < rows && (chunk0 + chunk) * 8 < pitch;
    copy_or_zeros(to + (chunk * PITCH + row) * 16, there ? from + (row0 + row) * pitch + (chunk0 + chunk) * 8 : from, there);
  }
}

DEV void load_stage(u8 *s, const Ballast &p, i64 row0, i64 column0, i64 stage) {
  copy_side(s, p.a, row0, p.m, p.pitch, stage * CHUNKS);
  copy_side(s + PLANE, p.a_exponents, row0, p.m, p.pitch, stage * CHUNKS);
  copy_side(s + 2 * PLANE, p.b, column0, p.n, p.pitch, stage * CHUNKS);
  copy_side(s + 3 * PLANE, p.b_exponents, column0, p.n, p.pitch, stage * CHUNKS);
  end_of_stage();
}

// Words of a block of one row in a plane of a stage.
DEV const u32 *block_of(const u8 *plane, int block, int row) {
  return (const u32 *)(plane + ((block / PER_CHUNK) * PITCH + row) * 16) + block % PER_CHUNK * (W / 2);
}

// The ballast for e, as lane `lane` holds it.
DEV Pair ballast(int e, int lane) {
  const int s = e + SHIFT, half = s >> 1;
  const u32 x = (u32)(half + BIAS) << MB, y = (u32)(s - half + BIAS) << MB;
  const bool holds = lane % 4 == (W == 8 ? 0 : 2);
  Pair p = {holds ? x * 0x10001u : 0, holds ? (y | (y | 0x8000u) << 16) : 0};
  return p;
}

// The exponent by which c aligns, NONE for zeros; 128 for infinities and NaN.
DEV int exponent_of(float c) {
  const u32 magnitude = __float_as_uint(c) & 0x7FFFFFFF;
  return magnitude ? max((int)(magnitude >> 23), 1) - 127 : NONE;
}

DEV int largest_product(const u32 *a, const u32 *b) {
  u32 most = 0x80008000u;
#pragma unroll
  for (int i = 0; i < W / 2; i++) most = __viaddmax_s16x2(a[i], b[i], most);
  return max((int)(short)most, (int)most >> 16);
}

// More than a block can change an output of the exponent in `field`: its products, each below 4 · 2^top, and what roundings drop.
DEV float growth(int top, u32 field) {
  const float products = top < -120 ? 0x1p-115f : __uint_as_float((u32)(min(top, 120) + 127 + (W == 8 ? 5 : 4)) << 23);
  return products + __uint_as_float(max(field, 21u << 23) - (20u << 23));
}

// One block of 16 x 8 outputs, whatever their exponents: an instruction for each that occurs. An output that none can serve becomes
// NaN, and stays it; where there are no products c stays. Returns how many instructions that took.
DEV int any_block(float (&acc)[4], u32 a0, u32 a1, u32 b0, const u32 *ea0, const u32 *ea1, const u32 *eb0, const u32 *eb1, int lane) {
  int e[4];
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int products = largest_product(i < 2 ? ea0 : ea1, i % 2 ? eb1 : eb0);
    e[i] = max(exponent_of(acc[i]), products);
    out[i] = acc[i];
    if (e[i] < NONE / 2) out[i] = 0;
    if (e[i] > HIGH || (e[i] < LOW && products > NONE / 2)) out[i] = __uint_as_float(0x7FFFFFFFu);
    if (e[i] > HIGH || e[i] < LOW) e[i] = NONE;
  }
  int instructions = 0;
  for (;; instructions++) {
    const int next = __reduce_max_sync(FULL, max(max(e[0], e[1]), max(e[2], e[3])));
    if (next < LOW) break;
    const Pair with = ballast(next, lane);
    float d[4];
    mma(d, a0, a1, b0, with, acc);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (e[i] == next) out[i] = d[i], e[i] = NONE;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) acc[i] = out[i];
  return instructions;
}

// A warp owns 32 rows by 64 columns: two by eight tiles of the instruction.
extern "C" __global__ void __launch_bounds__(256, 2) ballast_gemm(const __grid_constant__ Ballast p) {
  extern __shared__ __align__(128) u8 shared[];
  const i64 down = (p.m + TILE - 1) / TILE, across = (p.n + TILE - 1) / TILE, band = 8;
  const i64 in_band = band * across, g0 = blockIdx.x / in_band, rows = min(band, down - g0 * band);
  const i64 row0 = (g0 * band + blockIdx.x % in_band % rows) * TILE, column0 = blockIdx.x % in_band / rows * TILE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int my_row = warp / 2 * 32, my_column = warp % 2 * 64;
  const bool idle = row0 + my_row >= p.m || column0 + my_column >= p.n;
  const i64 stages = (p.blocks + STAGE_BLOCKS - 1) / STAGE_BLOCKS;
#define ROW(x, i) (row0 + my_row + (x) * 16 + g + (i) / 2 * 8)
#define COLUMN(y, i) (column0 + my_column + (y) * 8 + t * 2 + (i) % 2)
  float acc[2][8][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        acc[x][y][i] = p.c && ROW(x, i) < p.m && COLUMN(y, i) < p.n ? __uint_as_float(p.c[ROW(x, i) * p.n + COLUMN(y, i)]) : 0;

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) load_stage(shared + s * STAGE_BYTES, p, row0, column0, s);
    else end_of_stage();
  }
  u32 field = 0;      // of the exponent of the warp's outputs, or the larger of two
  bool pair = false;  // whether there are two, the other one less
  float room = -1;    // how much more products may add before an output has another exponent, or before it is worth looking
  Pair with = {0, 0}, with_less = {0, 0};
  u64 stop = *(volatile u64 *)(p.count + 1);
  i64 instructions = 0;  // of blocks whose outputs share no exponent
  for (i64 stage = 0; stage < stages; stage++) {
    wait_for_stage();
    if (__syncthreads_or(stop != 0)) return;
    stop = *(volatile u64 *)(p.count + 1);
    if (stage + STAGES - 1 < stages)
      load_stage(shared + (stage + STAGES - 1) % STAGES * STAGE_BYTES, p, row0, column0, stage + STAGES - 1);
    else end_of_stage();
    if (idle) continue;
    const u8 *s = shared + stage % STAGES * STAGE_BYTES;
    int tops = 2 * NONE;  // of a lane's block: no product of the warp's has a larger exponent
    if (lane < STAGE_BLOCKS && stage * STAGE_BLOCKS + lane < p.blocks) {
      const i64 block = stage * STAGE_BLOCKS + lane;
      const i64 of_a = (row0 + my_row) / 32, of_b = (column0 + my_column) / 32;
      const int first = p.b_tops[block * p.b_groups + of_b];
      const int second = of_b + 1 < p.b_groups ? p.b_tops[block * p.b_groups + of_b + 1] : NONE;
      tops = p.a_tops[block * p.a_groups + of_a] + max(first, second);
    }
#pragma unroll 1
    for (int block = 0; block < STAGE_BLOCKS && stage * STAGE_BLOCKS + block < p.blocks; block++) {
      u32 a[2][2], b[8];
#pragma unroll
      for (int x = 0; x < 2; x++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          a[x][half] = W == 8 || t < W / 2 ? block_of(s, block, my_row + x * 16 + half * 8 + g)[t % (W / 2)] : 0;
#pragma unroll
      for (int y = 0; y < 8; y++) b[y] = W == 8 || t < W / 2 ? block_of(s + 2 * PLANE, block, my_column + y * 8 + g)[t % (W / 2)] : 0;
      const int top = __shfl_sync(FULL, tops, block);
      room -= growth(top, field);
      if (!(room > 0)) {
        int least = 0x7FFFFFFF, most = -0x7FFFFFFF - 1;
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int y = 0; y < 8; y++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
              const int first = (int)__float_as_uint(acc[x][y][i]), second = (int)__float_as_uint(acc[x][y][i + 1]);
              least = __vimin3_s32(least, first, second), most = __vimax3_s32(most, first, second);
            }
        least = __reduce_min_sync(FULL, least), most = __reduce_max_sync(FULL, most);
        const bool one_sign = (least ^ most) >= 0, negative = most < 0;  // then numbers order as their magnitudes do
        least &= 0x7FFFFFFF, most &= 0x7FFFFFFF;
        const int low = (least >> 23) - 127, high = (most >> 23) - 127;
        const bool alike = one_sign && low >= LOW && high <= HIGH && high - low <= 1 && top <= low;
        if (alike) {
          field = (u32)most & 0x7F800000;
          pair = low != high;
          with = ballast(high, lane), with_less = ballast(low, lane);
          room = __uint_as_float((int)field + (1 << 23)) - __uint_as_float(most);
          if (p.sign != (i64)negative) room = fminf(room, __uint_as_float(least) - __uint_as_float((low + 127) << 23));
          const float now = growth(top, field);
          if (pair) room = fminf(room, fmaxf(__uint_as_float((int)field) - __uint_as_float(least), 4 * now));
          room -= now;
        } else {
#pragma unroll
          for (int x = 0; x < 2; x++)
#pragma unroll
            for (int y = 0; y < 8; y++)
              instructions += any_block(acc[x][y], a[x][0], a[x][1], b[y], block_of(s + PLANE, block, my_row + x * 16 + g),
                        block_of(s + PLANE, block, my_row + x * 16 + 8 + g), block_of(s + 3 * PLANE, block, my_column + y * 8 + t * 2),
                        block_of(s + 3 * PLANE, block, my_column + y * 8 + t * 2 + 1), lane);
          room = -1;
        }
        if (row0 + my_row + 32 > p.m || column0 + my_column + 64 > p.n) {  // what lies outside the result shall not stand apart
          const u32 like_others = (__shfl_sync(FULL, __float_as_uint(acc[0][0][0]), 0) & 0xFF800000) | 0x400000;
#pragma unroll
          for (int x = 0; x < 2; x++)
#pragma unroll
            for (int y = 0; y < 8; y++)
#pragma unroll
              for (int i = 0; i < 4; i++)
                if (ROW(x, i) >= p.m || COLUMN(y, i) >= p.n)
                  acc[x][y][i] = __uint_as_float(like_others);
        }
        if (!alike) continue;
      }
      if (!pair) {
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int y = 0; y < 8; y++) mma(acc[x][y], a[x][0], a[x][1], b[y], with, acc[x][y]);
        continue;
      }
#pragma unroll
      for (int x = 0; x < 2; x++)
#pragma unroll
        for (int y = 0; y < 8; y++) {
          float d[4], e[4];
          mma(d, a[x][0], a[x][1], b[y], with_less, acc[x][y]);
          mma(e, a[x][0], a[x][1], b[y], with, acc[x][y]);
#pragma unroll
          for (int i = 0; i < 4; i++) acc[x][y][i] = fabsf(acc[x][y][i]) >= __uint_as_float(field) ? e[i] : d[i];
        }
    }
    if (lane == 0 && instructions > 16 * (p.limit * (stage + 1) * STAGE_BLOCKS + 64)) *(volatile u64 *)(p.count + 1) = 1;
  }
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (ROW(x, i) >= p.m || COLUMN(y, i) >= p.n) continue;
        const u32 bits = __float_as_uint(acc[x][y][i]);
        p.d[ROW(x, i) * p.n + COLUMN(y, i)] = bits;
        if ((bits & 0x7FFFFFFF) > 0x7F800000) {
          const u64 at = atomicAdd(p.count, 1ull);
          if ((i64)at < p.room) p.list[at] = p.offset + ROW(x, i) * p.n + COLUMN(y, i);
        }
      }
}
