// One operand as the groups that grouped.cuh reads. One thread packs one group of one row of a (or column of b).
//
// The host defines SIDE_A, Unit, and STORED, MINE, S: the stored format, the unit's and that of the scales. A group past the last k is
// none: nothing is added for it, and it is no zero term; nor are the products that the last group lacks.

#define PADDING (-8192)  // the exponent of no group

struct PackGroups {
  const u8 *codes, *scales;
  uint4 *numbers;
  uint2 *about;
  const i64 *list;   // outputs whose rows are packed, in their order, as one batch; or all rows
  i64 batch_step, row_step, k_step, scale_batch, scale_row, scale_step;  // bytes
  i64 batch, rows, k, pitch, groups, m, n;
};

// A code as a multiple of the format's smallest number, which 8 bits hold.
DEV int small_integer(u64 code) {
  const Value v = decode<STORED>(code, MINE::EMIN());
  const int up = v.lsb - (MINE::EMIN() - MINE::MB());
  const int size = up >= 0 ? (int)v.significand << up : (int)((u64)v.significand >> -up);
  return v.negative ? -size : size;
}

DEV void pack_group(const PackGroups &p, i64 row, i64 group, i64 batch, i64 to) {
  u32 words[4] = {0, 0, 0, 0}, present = 0, high = 0;
  int exponent = PADDING;
  const i64 k0 = group * 16;
  if (row < p.rows && k0 < p.k) {
    for (int i = 0; i < 16 && k0 + i < p.k; i++) {
      const i64 at = batch * p.batch_step + row * p.row_step + (k0 + i) * p.k_step;
      const int x = small_integer(load_code(p.codes, at, STORED::BYTES()));
      words[i / 4] |= (u32)(x & 0xFF) << i % 4 * 8;
      present |= (u32)(x != 0) << i;
    }
    const i64 at = batch * p.scale_batch + row * p.scale_row + k0 / Unit::SCALE_BLOCK() * p.scale_step;
    const Value s = decode<S>(load_code(p.scales, at, S::BYTES()), S::EMIN());
    const int scale = (SIDE_A ? Unit::KEPT_FRACTION() - 52 : 0) + MINE::EMIN() - MINE::MB();
    exponent = s.exponent;
    if (s.kind) {
      high = 0x7FF80000u, exponent = 0;
    } else if (s.zero) {
      present = 0;
    } else {
      const u64 whole = (u64)s.significand;
      const int top = top_bit(whole);
      high = (u32)(top + s.lsb + 1023 + scale) << 20 | ((u32)(whole << (20 - top)) & 0xFFFFFu);
    }
    if (SIDE_A) exponent += 1023;
  } else {
    present = 0xFFFF;
  }
  const i64 at = to * p.groups + group;
  uint4 numbers;
  numbers.x = words[0], numbers.y = words[1], numbers.z = words[2], numbers.w = words[3];
  uint2 about;
  about.x = high, about.y = (u32)exponent << 16 | present;
  p.numbers[at] = numbers;
  p.about[at] = about;
}

extern "C" __global__ void pack_groups(const __grid_constant__ PackGroups p) {
  const i64 index = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (index >= p.pitch * p.groups) return;
  // neighbours along whichever way codes lie side by side
  const bool by_row = p.row_step < p.k_step;
  const i64 row = by_row ? index % p.pitch : index / p.groups, group = by_row ? index / p.pitch : index % p.groups;
  if (p.list) {
    const i64 element = p.list[row];
    pack_group(p, SIDE_A ? element / p.n % p.m : element % p.n, group, element / p.n / p.m, row);
    return;
  }
  for (i64 batch = blockIdx.y; batch < p.batch; batch += gridDim.y) pack_group(p, row, group, batch, batch * p.pitch + row);
}
