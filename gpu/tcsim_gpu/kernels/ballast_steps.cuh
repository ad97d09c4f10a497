// One block of a warp's outputs on the tensor core with ballast, which kernels/ballast.cuh explains. Stands after survey.cuh and before it.

// The ballast's factors as a lane holds them: products 8 and 9 of an instruction of 16, 4 and 5 of one of 8, and zeros in the lanes of
// others. a serves the exponents e ... e + count - 1, b the exponent e; each next one's is STEP more. `mine` are the bits of a lane's
// words of operands: none where it holds ballast in their place.
struct Pair {
  u32 a, b, mine;
};

#define STEP ((1u << MB) * 0x10001u)

DEV bool holds_ballast(int lane) { return lane % 4 == (W == 8 ? 0 : 2); }

DEV Pair ballast(int e, int count, int lane) {
  const int s = e + SHIFT, half = (s + count - 1) >> 1;
  const u32 x = (u32)(half + BIAS) << MB, y = (u32)(s - half + BIAS) << MB;
  Pair p = {holds_ballast(lane) ? x * 0x10001u : 0, holds_ballast(lane) ? (y | (y | 0x8000u) << 16) : 0, W == 8 || lane % 4 < W / 2 ? ~0u : 0};
  return p;
}

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
      : "r"(a0 & with.mine | with.a), "r"(a1 & with.mine | with.a), "r"(b0 & with.mine | with.b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
#elif W == 8
  host_mma(d, a0, a1, with.a, with.a, b0, with.b, c);
#else
  host_mma(d, a0 & with.mine | with.a, a1 & with.mine | with.a, 0, 0, b0 & with.mine | with.b, 0, c);
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

// One block of two tiles of 16 x 8 outputs, whatever their exponents: two instructions for each that occurs. An output that none can
// serve becomes NaN, and stays it; where there are no products c stays. Returns how many exponents there were.
DEV int any_block(float (&upper)[4], float (&lower)[4], const u32 (&a)[2][2], u32 b, const u32 (&ea)[2][2][W / 2], const u32 *column0, const u32 *column1, int lane) {
  u32 eb[2][W / 2];
#pragma unroll
  for (int i = 0; i < W / 2; i++) eb[0][i] = exponents_of(column0[i]), eb[1][i] = exponents_of(column1[i]);
  int e[2][4];
  float out[2][4];
#pragma unroll
  for (int x = 0; x < 2; x++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float c = x ? lower[i] : upper[i];
      const int products = largest_product(ea[x][i / 2], eb[i % 2]);
      e[x][i] = max(exponent_of(c), products);
      out[x][i] = c;
      if (e[x][i] < NONE / 2) out[x][i] = 0;
      if (e[x][i] > HIGH || (e[x][i] < LOW && products > NONE / 2)) out[x][i] = __uint_as_float(0x7FFFFFFFu);
      if (e[x][i] > HIGH || e[x][i] < LOW) e[x][i] = NONE;
    }
  }
  int found = 0;
  for (;; found++) {
    int next = NONE;
#pragma unroll
    for (int i = 0; i < 4; i++) next = max(next, max(e[0][i], e[1][i]));
    next = __reduce_max_sync(FULL, next);
    if (next < LOW) break;
    const Pair with = ballast(next, 1, lane);
    float d[2][4];
    mma(d[0], a[0][0], a[0][1], b, with, upper);
    mma(d[1], a[1][0], a[1][1], b, with, lower);
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (e[x][i] == next) out[x][i] = d[x][i], e[x][i] = NONE;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) upper[i] = out[0][i], lower[i] = out[1][i];
  return found;
}

// Bits of the least and the most of a warp's outputs in magnitude, where they have one sign.
struct Range {
  int least, most, low, high;  // and their exponents
  bool one_sign, negative;
};

DEV Range range_of(const float (&acc)[2][YS][4]) {
  int least = 0x7FFFFFFF, most = -0x7FFFFFFF - 1;
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < YS; y++)
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
