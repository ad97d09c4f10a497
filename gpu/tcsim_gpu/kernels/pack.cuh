// One operand as the planes that aligned.cuh reads. One thread packs one block of one row of a (or column of b).
//
// The host defines SIDE_A (exponents twice in a word for a, once in 16 bits for b), Unit, and STORED, MINE, S: the stored format,
// the unit's and that of the scales, which multiply the numbers here and add their exponents. `order` says which k stands where; -1 is padding, which is no zero term.

#define L Unit::BLOCK()
#define BOTTOM 123  // as in aligned.cuh
#define FLOOR Unit::FLOOR()
#define HAS_FLOOR (FLOOR != -100000)
#define SIGN_CHANGES (Unit::ALIGN() == RZ)
#define SCALE (SIDE_A ? Unit::KEPT_FRACTION() - 52 : 0)  // the power of two that values are scaled by
#define ZERO_EXPONENT (-16384)

struct Packing {
  const u8 *codes;
  u32 *value, *change, *exponent, *floor, *last, *special;
  const int *order;
  const u8 *scales;
  i64 scale_batch, scale_row, scale_step;  // bytes
  i64 batch_step, row_step, k_step;  // bytes
  i64 batch, rows, pitch, k_pad, blocks_pad;
};

DEV void put_exponent(u32 *plane, i64 at, int e) {
  if (SIDE_A) plane[at] = (u32)(e & 0xFFFF) * 0x10001u;
  else ((u16 *)plane)[at] = (u16)e;
}

// v times the scale of its block along k, a power of two or NaN.
DEV Value scaled_by(Value v, const Packing &p, i64 row, i64 k, i64 batch) {
  const i64 at = batch * p.scale_batch + row * p.scale_row + k / Unit::SCALE_BLOCK() * p.scale_step;
  const Value s = decode<S>(load_code(p.scales, at, S::BYTES()), S::EMIN());
  v.lsb += s.lsb;
  v.exponent += s.exponent;
  if (s.kind) v.kind = NOT_A_NUMBER;
  return v;
}

DEV void pack_block(const Packing &p, i64 row, i64 block, i64 batch) {
  u32 before = 0, special = 0;
  bool zero = false;
  for (int i = 0; i < L; i++) {
    const int k = p.order[block * L + i];
    u32 high = 0, sign = 0;
    int e = ZERO_EXPONENT;
    if (k >= 0 && row < p.rows) {
      const u64 code = load_code(p.codes, batch * p.batch_step + row * p.row_step + k * p.k_step, STORED::BYTES());
      Value v = decode<STORED>(code, MINE::EMIN());
      if (Unit::SCALED()) v = scaled_by(v, p, row, k, batch);
      const u64 s = (u64)v.significand;
      const int top = top_bit(s);
      sign = v.negative ? 0x80000000u : 0;
      if (v.kind) {
        high = v.kind == INFINITE ? 0x7FF00000u : 0x7FF80000u;
        e = v.exponent;
        special = 1;
      } else if (v.zero) {
        zero = true;
      } else {
        high = (u32)(top + v.lsb + 1023 + SCALE) << 20 | ((u32)(top > 20 ? s >> (top - 20) : s << (20 - top)) & 0xFFFFFu);
        e = v.exponent;
      }
      if (e != ZERO_EXPONENT && SIDE_A) e += 1023;
    }
    const i64 at = (batch * p.k_pad + block * L + i) * p.pitch + row;
    p.value[at] = SIGN_CHANGES ? high : high | sign;
    if (SIGN_CHANGES) p.change[at] = sign ^ before;
    before = sign;
    put_exponent(p.exponent, at, e);
  }
  const i64 at = (batch * p.blocks_pad + block) * p.pitch + row;
  if (HAS_FLOOR) put_exponent(p.floor, at, zero ? FLOOR + 1023 : BOTTOM);
  if (SIGN_CHANGES) p.last[at] = before;
  if (special) atomicOr(p.special, 1u);
}

extern "C" __global__ void pack(const __grid_constant__ Packing p) {
  const i64 row = blockIdx.y * (i64)blockDim.x + threadIdx.x, block = blockIdx.x;
  if (row >= p.pitch) return;
  for (i64 batch = blockIdx.z; batch < p.batch; batch += gridDim.z) pack_block(p, row, block, batch);
}
