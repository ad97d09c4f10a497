// Codes of the format STORED as codes of MINE, which holds every value: C-ordered output from a strided input.
extern "C" __global__ void convert(const u8 *from, u8 *to, i64 s0, i64 s1, i64 s2, i64 n1, i64 n2, i64 count) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
    const i64 at = i / n2 / n1 * s0 + i / n2 % n1 * s1 + i % n2 * s2;
    const Value v = decode<STORED>(load_code(from, at, STORED::BYTES()), MINE::EMIN());
    store_code(to, i, MINE::BYTES(), encode_exact<MINE>(v, NAN_CODE_OF_MINE));
  }
}
