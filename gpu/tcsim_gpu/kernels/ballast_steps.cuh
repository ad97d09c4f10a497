// One block of a warp's outputs on the tensor core with ballast, which kernels/ballast.cuh explains. Stands after survey.cuh and before it.

// The ballast's factors for an exponent e and for e - 1, as a lane holds them: of a, of b for e, of b for e - 1. Products 8 and 9 of an
// instruction of 16, 4 and 5 of one of 8, and zeros in the lanes of others.
struct Pair {
  u32 a, b, less;
};

DEV Pair ballast(int e, int lane) {
  const int s = e + SHIFT, half = s >> 1;
  const u32 x = (u32)(half + BIAS) << MB, y = (u32)(s - half + BIAS) << MB, less = y - (1 << MB);
  const bool holds = lane % 4 == (W == 8 ? 0 : 2);
  Pair p = {holds ? x * 0x10001u : 0, holds ? (y | (y | 0x8000u) << 16) : 0, holds ? (less | (less | 0x8000u) << 16) : 0};
  return p;
}

// d = c + a·b of a 16 x 8 tile and the ballast, by the tensor core: 16 products where a block has up to 8, 8 where it has up to 4.
DEV void mma(float (&d)[4], u32 a0, u32 a1, u32 b0, u32 with_a, u32 with_b, const float (&c)[4]) {
#ifdef __CUDACC__
#if W == 8
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %6}, {%7, %8}, {%9, %10, %11, %12};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(with_a), "r"(b0), "r"(with_b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0 | with_a), "r"(a1 | with_a), "r"(b0 | with_b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
#elif W == 8
  host_mma(d, a0, a1, with_a, with_a, b0, with_b, c);
#else
  host_mma(d, a0 | with_a, a1 | with_a, 0, 0, b0 | with_b, 0, c);
#endif
}

// Keeps the compiler from computing x anew, or fetching it, where it is used.
DEV u32 held(u32 x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

DEV float power(int e) { return __uint_as_float((u32)(e + 127) << 23); }

// The exponent by which c aligns, NONE for zeros; 128 for infinities and NaN.
DEV int exponent_of(float c) {
  const u32 magnitude = __float_as_uint(c) & 0x7FFFFFFF;
  return magnitude ? max((int)(magnitude >> 23), 1) - 127 : NONE;
}

DEV int largest_product(const u32 (&a)[W / 2], const u32 (&b)[W / 2]) {
  u32 most = 0x80008000u;
#pragma unroll
  for (int i = 0; i < W / 2; i++) most = __viaddmax_s16x2(a[i], b[i], most);
  return max((int)(short)most, (int)most >> 16);
}

// One block of 16 x 8 outputs that are larger than every product and have exponents from low to high.
DEV void few_exponents(float (&acc)[4], u32 a0, u32 a1, u32 b0, int low, int high, int lane) {
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = acc[i];
#pragma unroll 1
  for (int e = low; e <= high; e++) {
    const Pair with = ballast(e, lane);
    float d[4];
    mma(d, a0, a1, b0, with.a, with.b, acc);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (exponent_of(acc[i]) == e) out[i] = d[i];
  }
#pragma unroll
  for (int i = 0; i < 4; i++) acc[i] = out[i];
}

// One block of 16 x 8 outputs, whatever their exponents: an instruction for each that occurs. An output that none can serve becomes
// NaN, and stays it; where there are no products c stays. Returns how many instructions that took.
DEV int any_block(float (&acc)[4], u32 a0, u32 a1, u32 b0, const u32 *row0, const u32 *row1, const u32 *column0, const u32 *column1, int lane) {
  u32 ea[2][W / 2], eb[2][W / 2];
#pragma unroll
  for (int i = 0; i < W / 2; i++) {
    ea[0][i] = exponents_of(row0[i]), ea[1][i] = exponents_of(row1[i]);
    eb[0][i] = exponents_of(column0[i]), eb[1][i] = exponents_of(column1[i]);
  }
  int e[4];
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int products = largest_product(ea[i / 2], eb[i % 2]);
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
    mma(d, a0, a1, b0, with.a, with.b, acc);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (e[i] == next) out[i] = d[i], e[i] = NONE;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) acc[i] = out[i];
  return instructions;
}

// Bits of the least and the most of a warp's outputs in magnitude, where they have one sign.
struct Range {
  int least, most, low, high;  // and their exponents
  bool one_sign, negative;
};

DEV Range range_of(const float (&acc)[2][8][4]) {
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
  Range r;
  r.one_sign = (least ^ most) >= 0, r.negative = most < 0;  // then words order as magnitudes do
  r.least = least & 0x7FFFFFFF, r.most = most & 0x7FFFFFFF;
  r.low = (r.least >> 23) - 127, r.high = (r.most >> 23) - 127;
  return r;
}
