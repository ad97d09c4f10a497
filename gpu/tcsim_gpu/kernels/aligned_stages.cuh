// How aligned.cuh's packed operands come into shared memory, stage by stage, and from there to a thread.

struct Planes {  // packed operands, [batch][k][row or column] or [batch][block][row or column]
  const u32 *value, *change, *exponent;  // high word of the double; sign change; exponent (twice 16 bits, or once)
  const u32 *floor, *last;               // least emax of the block, as exponent is; sign of its last product
  i64 pitch, k_pad, blocks_pad;
};

struct Job {
  Planes a, b;
  const u8 *c;
  void *d;
  u32 *inexact;  // outputs whose exact alignment did not fit: count, then elements (as two words each)
  u64 seed;
  i64 batch, m, n;
  int blocks, segment_blocks, c_first;
  u32 field, sign;  // 0x7FF00000 and 0x80000000 of a double: not literals, so that one instruction can mask and set
};

DEV void copy16(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
#else
  *(uint4 *)to = *(const uint4 *)from;
#endif
}

DEV void end_of_stage() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}

DEV void wait_for_stage() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
#endif
}

// `rows` rows of WIDTH_ bytes, `pitch` bytes apart in global memory, to shared memory.
template <int WIDTH_> DEV void copy_rows(int rows, u8 *to, const void *from, i64 pitch) {
  constexpr int chunks = WIDTH_ / 16, threads = (BM / TM) * (BN / TN);
#pragma unroll
  for (int i = threadIdx.x; i < rows * chunks; i += threads)
    copy16(to + i * 16, (const u8 *)from + (i / chunks) * pitch + (i % chunks) * 16);
}

#define BLOCKS (KB / L)
#define A_VALUE 0
#define A_CHANGE (A_VALUE + KB * BM * 4)
#define A_EXPONENT (A_CHANGE + (SIGN_CHANGES ? KB * BM * 4 : 0))
#define B_VALUE (A_EXPONENT + KB * BM * 4)
#define B_CHANGE (B_VALUE + KB * BN * 4)
#define B_EXPONENT (B_CHANGE + (SIGN_CHANGES ? KB * BN * 4 : 0))
#define A_FLOOR (B_EXPONENT + KB * BN * 2)
#define B_FLOOR (A_FLOOR + (HAS_FLOOR ? BLOCKS * BM * 4 : 0))
#define A_LAST (B_FLOOR + (HAS_FLOOR ? BLOCKS * BN * 2 : 0))
#define B_LAST (A_LAST + (SPECIALS && SIGN_CHANGES ? BLOCKS * BM * 4 : 0))
#define STAGE_BYTES (B_LAST + (SPECIALS && SIGN_CHANGES ? BLOCKS * BN * 4 : 0))

DEV void load_stage(u8 *s, const Job &job, i64 batch, i64 row, i64 column, int stage) {
  const i64 ka = batch * job.a.k_pad + (i64)stage * KB, kb = batch * job.b.k_pad + (i64)stage * KB;
  const i64 a = ka * job.a.pitch + row, b = kb * job.b.pitch + column;
  copy_rows<BM * 4>(KB, s + A_VALUE, job.a.value + a, job.a.pitch * 4);
  copy_rows<BM * 4>(KB, s + A_EXPONENT, job.a.exponent + a, job.a.pitch * 4);
  copy_rows<BN * 4>(KB, s + B_VALUE, job.b.value + b, job.b.pitch * 4);
  copy_rows<BN * 2>(KB, s + B_EXPONENT, (const u16 *)job.b.exponent + b, job.b.pitch * 2);
  if (SIGN_CHANGES) {
    copy_rows<BM * 4>(KB, s + A_CHANGE, job.a.change + a, job.a.pitch * 4);
    copy_rows<BN * 4>(KB, s + B_CHANGE, job.b.change + b, job.b.pitch * 4);
  }
  const i64 fa = (batch * job.a.blocks_pad + (i64)stage * BLOCKS) * job.a.pitch + row;
  const i64 fb = (batch * job.b.blocks_pad + (i64)stage * BLOCKS) * job.b.pitch + column;
  if (HAS_FLOOR) {
    copy_rows<BM * 4>(BLOCKS, s + A_FLOOR, job.a.floor + fa, job.a.pitch * 4);
    copy_rows<BN * 2>(BLOCKS, s + B_FLOOR, (const u16 *)job.b.floor + fb, job.b.pitch * 2);
  }
  if (SPECIALS && SIGN_CHANGES) {
    copy_rows<BM * 4>(BLOCKS, s + A_LAST, job.a.last + fa, job.a.pitch * 4);
    copy_rows<BN * 4>(BLOCKS, s + B_LAST, job.b.last + fb, job.b.pitch * 4);
  }
  end_of_stage();
}

// N words of this thread's rows (contiguous) or columns (four, then four from the middle of the tile on).
template <int N, int SPLIT> DEV void words(u32 (&to)[N], const u8 *from, int first) {
  const u32 *p = (const u32 *)from + first;
  if constexpr (N == 2) {
    const uint2 v = *(const uint2 *)p;
    to[0] = v.x, to[1] = v.y;
  } else {
#pragma unroll
    for (int q = 0; q < N / 4; q++) {
      const uint4 v = *(const uint4 *)(p + q * SPLIT);
      to[4 * q] = v.x, to[4 * q + 1] = v.y, to[4 * q + 2] = v.z, to[4 * q + 3] = v.w;
    }
  }
}

// The exponents of this thread's columns, two a word.
DEV void pairs(u32 (&to)[TN / 2], const u8 *from, int first) {
  const u16 *p = (const u16 *)from + first;
#pragma unroll
  for (int q = 0; q < TN / 4; q++) {
    const uint2 v = *(const uint2 *)(p + q * (BN / 2));
    to[2 * q] = v.x, to[2 * q + 1] = v.y;
  }
}

