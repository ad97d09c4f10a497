// Whether any of some words, or of some others, has one of the bits of `mask`: a row of the grid looks at each.
struct Beneath {
  const u32 *words, *others;
  u32 *found;
  i64 count, others_count;
  u32 mask;
};

extern "C" __global__ void beneath(const __grid_constant__ Beneath p) {
  const u32 *words = blockIdx.y ? p.others : p.words;
  const i64 count = blockIdx.y ? p.others_count : p.count;
  u32 bits = 0;
  const i64 step = (i64)gridDim.x * blockDim.x, first = blockIdx.x * (i64)blockDim.x + threadIdx.x, fours = count / 4;
  for (i64 i = first; i < fours; i += step) {
    const uint4 x = ((const uint4 *)words)[i];
    bits |= x.x | x.y | x.z | x.w;
  }
  for (i64 i = fours * 4 + first; i < count; i += step) bits |= words[i];
  if (bits & p.mask) *p.found = 1;
}
