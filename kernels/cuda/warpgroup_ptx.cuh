#pragma once
// Matrix products of warpgroups (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"), for compute
// capability 9.0 alone: files that include this are compiled for sm_90a. The four warps of a warpgroup, 128 threads
// from a multiple of 128 on, call everything here together.
//
// A product has 64 rows, warp w of the four rows 16 w to 16 w + 15, and 8 n columns; c[j] are a lane's elements of
// columns 8 j to 8 j + 7, and a those of A, both as for m16n8k16 (tensor_core.cuh). B lies in shared memory in parts of
// 64 columns of bf16: rows of 128 bytes, whose 16-byte chunks are permuted by the row's number (Tile<64>), from a
// multiple of 1024 bytes on.
//
//   WarpgroupArrive(c, a);
//   for (int k = 0; k < ...; ++k) WarpgroupMultiply<kBRows>(c, a[k], b + ..., k > 0);
//   WarpgroupWait(c, a);    // until then nobody may touch c, a or what b describes

#include <cuda_runtime.h>

#include <cstdint>

namespace holdfast::kernels {

/// How B (k x n) lies in memory.
enum class BLayout : uint8_t {
  kColumns,  ///< rows in memory are B's columns: the product is with the transposed of what is stored
  kRows,     ///< rows in memory are B's rows
};

/// Of a B that begins at `at`. `part_bytes`: from one 64 columns of what is stored to the next; for BLayout::kRows with
/// more than 64.
__device__ __forceinline__ uint64_t MatrixDescriptor(const void* at, uint32_t part_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  return kSwizzle128 | kEightRows | uint64_t{part_bytes >> 4} << 16 | (address & 0x3ffffu) >> 4;
}

/// That of a B that begins `bytes` further, a multiple of 16.
__device__ __forceinline__ uint64_t Further(uint64_t descriptor, uint32_t bytes) {
  const auto address = static_cast<uint32_t>(descriptor) + (bytes >> 4);  // 32 bits: it does not carry
  return descriptor >> 32 << 32 | address;
}

/// What this thread wrote to shared memory is seen by products that begin after a barrier.
__device__ __forceinline__ void ShowToWarpgroups() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

/// The compiler computes x before here, and not where it is first used.
__device__ __forceinline__ void Settle(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ __forceinline__ void Settle(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <typename T, int n>
__device__ __forceinline__ void Settle(T (&x)[n][4]) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) Settle(x[j][i]);
  }
}

/// Before the first product of sums and operands that other instructions have written to: `registers` are those. Else
/// the compiler may write them between fence and product, and ptxas adds a fence there (its message C7519).
template <typename... Registers>
__device__ __forceinline__ void WarpgroupArrive(Registers&... registers) {
  (Settle(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

#define HOLDFAST_COLUMNS(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define HOLDFAST_32_COLUMNS(j) \
  HOLDFAST_COLUMNS(j), HOLDFAST_COLUMNS(j + 1), HOLDFAST_COLUMNS(j + 2), HOLDFAST_COLUMNS(j + 3)
#define HOLDFAST_64_COLUMNS(j) HOLDFAST_32_COLUMNS(j), HOLDFAST_32_COLUMNS(j + 4)
#define HOLDFAST_16_OF_C "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define HOLDFAST_32_OF_C \
  HOLDFAST_16_OF_C ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HOLDFAST_64_OF_C                                                                            \
  HOLDFAST_32_OF_C                                                                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50" \
  ", %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HOLDFAST_128_OF_C                                                                           \
  HOLDFAST_64_OF_C                                                                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82" \
  ", %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100"     \
  ", %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115"      \
  ", %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HOLDFAST_WGMMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "

/// c = a b, or c += a b if `adds`. Begun, not done.
template <BLayout kLayout>
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n" HOLDFAST_WGMMA(
                   64) "{" HOLDFAST_32_OF_C "}, {%32, %33, %34, %35}, %36, adds, 1, 1, %38;\n}\n"
               : HOLDFAST_64_COLUMNS(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)),
                 "n"(kLayout == BLayout::kRows ? 1 : 0));
}
template <BLayout kLayout>
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n" HOLDFAST_WGMMA(
                   128) "{" HOLDFAST_64_OF_C "}, {%64, %65, %66, %67}, %68, adds, 1, 1, %70;\n}\n"
               : HOLDFAST_64_COLUMNS(0), HOLDFAST_64_COLUMNS(8)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)),
                 "n"(kLayout == BLayout::kRows ? 1 : 0));
}

/// The same with a in shared memory, its rows as BLayout::kColumns has those of b, and b of that layout.
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[4][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %18, 0;\n" HOLDFAST_WGMMA(
                   32) "{" HOLDFAST_16_OF_C "}, %16, %17, adds, 1, 1, 0, 0;\n}\n"
               : HOLDFAST_32_COLUMNS(0)
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[8][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n" HOLDFAST_WGMMA(
                   64) "{" HOLDFAST_32_OF_C "}, %32, %33, adds, 1, 1, 0, 0;\n}\n"
               : HOLDFAST_64_COLUMNS(0)
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[16][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n" HOLDFAST_WGMMA(
                   128) "{" HOLDFAST_64_OF_C "}, %64, %65, adds, 1, 1, 0, 0;\n}\n"
               : HOLDFAST_64_COLUMNS(0), HOLDFAST_64_COLUMNS(8)
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

/// The same with any layouts: b's, and that of a's transposed.
template <BLayout kA, BLayout kB>
__device__ __forceinline__ void WarpgroupMultiply(float (&c)[32][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n" HOLDFAST_WGMMA(
                   256) "{" HOLDFAST_128_OF_C "}, %128, %129, adds, 1, 1, %131, %132;\n}\n"
               : HOLDFAST_64_COLUMNS(0), HOLDFAST_64_COLUMNS(8), HOLDFAST_64_COLUMNS(16), HOLDFAST_64_COLUMNS(24)
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(kA == BLayout::kRows ? 1 : 0),
                 "n"(kB == BLayout::kRows ? 1 : 0));
}

#undef HOLDFAST_WGMMA
#undef HOLDFAST_128_OF_C
#undef HOLDFAST_64_OF_C
#undef HOLDFAST_32_OF_C
#undef HOLDFAST_16_OF_C
#undef HOLDFAST_64_COLUMNS
#undef HOLDFAST_32_COLUMNS
#undef HOLDFAST_COLUMNS

/// Ends a group of products. Groups are done in the order in which they began.
__device__ __forceinline__ void WarpgroupEndGroup() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

/// Waits until at most `pending` of the newest groups are under way: `registers` are sums that may then be read, and
/// operands that may be changed.
template <int pending, typename... Registers>
__device__ __forceinline__ void WarpgroupWaitFor(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
  (Settle(registers), ...);
}

/// Waits for all products that this warpgroup has begun, so that c may be read.
template <int n>
__device__ __forceinline__ void WarpgroupWait(float (&c)[n][4]) {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  // The compiler thinks that c was there at once: it is not read before here.
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[j][i])::"memory");
  }
}

/// The same, also for the operands of what adds to c: they are in use until here.
template <int n, int k>
__device__ __forceinline__ void WarpgroupWait(float (&c)[n][4], const uint32_t (&a)[k][4]) {
  WarpgroupWait(c);
#pragma unroll
  for (int j = 0; j < k; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" ::"r"(a[j][i]) : "memory");
  }
}

}  // namespace holdfast::kernels
