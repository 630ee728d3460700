#pragma once
// The instructions of tensor cores and of copies into shared memory (PTX ISA, "Warp Level Matrix Instructions" and
// "Asynchronous copy"), for compute capability 8.0 and up. All lanes of a warp call them together.
//
// Fragments of m16n8k16, lane l, group g = l / 4, t = l % 4; each register holds two bf16, the lower column first:
//   A (16 x 16, row-major): a[0] = (g, 2t..), a[1] = (g + 8, 2t..), a[2] = (g, 2t + 8..), a[3] = (g + 8, 2t + 8..)
//   B (16 x 8, "column-major": k pairs together): b[0] = (k = 2t.., n = g), b[1] = (k = 2t + 8.., n = g)
//   C, D (16 x 8, fp32): c[0], c[1] = (g, 2t), (g, 2t + 1); c[2], c[3] = (g + 8, 2t), (g + 8, 2t + 1)

#include <cuda_runtime.h>

#include <cstdint>

namespace holdfast::kernels {

/// c += a b.
__device__ __forceinline__ void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8 x 8 matrices of 16-bit values from shared memory. Lane l gives the address of row l % 8 of matrix l / 8
/// (16 bytes, so aligned) and receives of matrix i, in r[i], columns 2 (l % 4) and the next of row l / 4.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/// The same with each matrix transposed: lane l receives rows 2 (l % 4) and the next of column l / 4.
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/// Two fp32 to bf16, to nearest even: `low` in the lower half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// 16 bytes from global to shared memory, both aligned to 16, without passing through registers; zeros if not `valid`.
/// Done when AsyncCopiesWait says so and the threads concerned have met at a barrier.
__device__ __forceinline__ void AsyncCopy16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global), "r"(bytes));
}

/// Ends a group of this thread's copies.
__device__ __forceinline__ void AsyncCopiesEndGroup() { asm volatile("cp.async.commit_group;\n" ::); }

/// Waits until at most `pending` of this thread's newest groups are under way.
template <int pending>
__device__ __forceinline__ void AsyncCopiesWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending));
}

}  // namespace holdfast::kernels
