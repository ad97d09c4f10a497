// Whether any of some words has one of the bits of `mask`.
struct Beneath {
  const u32 *words;
  u32 *found;
  i64 count;
  u32 mask;
};

extern "C" __global__ void beneath(const __grid_constant__ Beneath p) {
  u32 bits = 0;
  const i64 step = (i64)gridDim.x * blockDim.x, first = blockIdx.x * (i64)blockDim.x + threadIdx.x, fours = p.count / 4;
  for (i64 i = first; i < fours; i += step) {
    const uint4 x = ((const uint4 *)p.words)[i];
    bits |= x.x | x.y | x.z | x.w;
  }
  for (i64 i = fours * 4 + first; i < p.count; i += step) bits |= p.words[i];
  if (bits & p.mask) *p.found = 1;
}
