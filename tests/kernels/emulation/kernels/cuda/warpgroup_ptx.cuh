#pragma once
// In place of the product's header of this name: the same instructions by their definition. Products that have begun
// have not happened yet: who reads their sums, changes their operands or the shared memory they read before they are
// waited for, or forgets to wait or to show what was copied, gets wrong values or a message.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "tests/kernels/emulation/kernels/cuda/tensor_core.cuh"

namespace holdfast::kernels {

enum class BLayout : uint8_t { kColumns, kRows };

// The fields that PTX documents: start, leading and stride byte offsets in units of 16, and the swizzle (1: 128 bytes).
inline uint64_t MatrixDescriptor(const void* at, uint32_t part_bytes) {
  emulation::CheckAligned(at, 1024);
  const auto address = static_cast<const char*>(at) - static_cast<const char*>(emulation::DynamicShared());
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{part_bytes >> 4} << 16 |
         static_cast<uint64_t>(address) >> 4;
}
inline uint64_t Further(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

/// Element (k, n) of the B that a descriptor means, or (n, k) of such an A.
inline double Element(uint64_t descriptor, BLayout layout, uint32_t k, uint32_t n) {
  const auto field = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fffu) << 4; };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const bool rows = layout == BLayout::kRows;
  const uint32_t row = rows ? k : n, col = rows ? n : k;
  const uint32_t place = start + col / 64 * leading + row / 8 * stride + row % 8 * 128 + col % 64 * 2;
  uint16_t bits;
  std::memcpy(&bits, static_cast<char*>(emulation::DynamicShared()) + (place ^ (place >> 7 & 7u) << 4), sizeof(bits));
  return static_cast<double>(__uint_as_float(uint32_t{bits} << 16));
}

inline void ShowToWarpgroups() { emulation::ShowCopies(); }
template <typename... Registers>
void WarpgroupArrive(Registers&...) {}

/// Begins a product whose rows of A, g and g + 8 of the warp's, `rows_of` gives when it happens.
template <int n, typename RowsOf>
void BeginProduct(float (&c)[n][4], uint64_t b, BLayout layout, bool adds, RowsOf rows_of) {
  emulation::CheckCopiesShown();
  emulation::NamedBarrier(15 - static_cast<int>(threadIdx.x) / 128, 128, true);  // the whole warpgroup does the same
  emulation::MultiplyLater(&c[0][0], 4 * n, [=](float* sums) {
    const std::array<std::array<double, 16>, 2> rows = rows_of();
    const int t = emulation::Lane() % 4;
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < 4; ++i) {
        double sum = adds ? static_cast<double>(sums[4 * j + i]) : 0.0;
        for (uint32_t k = 0; k < 16; ++k) {
          sum +=
              rows[static_cast<size_t>(i / 2)][k] * Element(b, layout, k, static_cast<uint32_t>(8 * j + 2 * t + i % 2));
        }
        sums[4 * j + i] = static_cast<float>(sum);
      }
    }
  });
}

template <BLayout kLayout, int n>
void WarpgroupMultiply(float (&c)[n][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
  const uint32_t* const operand = a;
  BeginProduct(c, b, kLayout, adds, [=] {
    const std::array<uint32_t, 4> mine = {operand[0], operand[1], operand[2], operand[3]};
    emulation::Deposit(0xffffffffu, &mine, sizeof(mine));
    std::array<std::array<double, 16>, 2> rows;
    for (size_t k = 0; k < 16; ++k) {
      std::array<uint32_t, 4> of_lane;
      const int lane = emulation::Lane() / 4 * 4 + static_cast<int>(k % 8 / 2);
      std::memcpy(&of_lane, emulation::Deposited(lane), sizeof(of_lane));
      for (size_t half = 0; half < 2; ++half) {
        const uint32_t pair = of_lane[half + 2 * (k / 8)];
        rows[half][k] = static_cast<double>(k % 2 == 0 ? LowerBf16(pair) : UpperBf16(pair));
      }
    }
    emulation::EndExchange(0xffffffffu);
    return rows;
  });
}

template <BLayout kA, BLayout kB, int n>
void WarpgroupMultiply(float (&c)[n][4], uint64_t a, uint64_t b, bool adds) {
  BeginProduct(c, b, kB, adds, [=] {
    const auto first = static_cast<uint32_t>(threadIdx.x % 128 / 32 * 16 + emulation::Lane() / 4);
    std::array<std::array<double, 16>, 2> rows;
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t k = 0; k < 16; ++k) rows[half][k] = Element(a, kA, k, first + 8 * half);
    }
    return rows;
  });
}
template <int n>
void WarpgroupMultiply(float (&c)[n][4], uint64_t a, uint64_t b, bool adds) {
  WarpgroupMultiply<BLayout::kColumns, BLayout::kColumns>(c, a, b, adds);
}

inline void WarpgroupEndGroup() { emulation::EndProductGroup(); }
template <int pending, typename... Registers>
void WarpgroupWaitFor(Registers&...) {
  emulation::WaitForProductGroups(pending);
}

template <int n>
void WarpgroupWait(float (&)[n][4]) {
  emulation::WaitForProducts();
}
template <int n, int k>
void WarpgroupWait(float (&)[n][4], const uint32_t (&)[k][4]) {
  emulation::WaitForProducts();
}

}  // namespace holdfast::kernels
