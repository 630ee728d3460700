#pragma once
// In place of the product's header of this name: the same instructions by their definition. Copies that are said to be
// under way have not happened yet; a kernel that reads too early sees what was there before.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace holdfast::kernels {

inline float UpperBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
inline float LowerBf16(uint32_t pair) { return __uint_as_float(pair << 16); }

inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    std::array<uint32_t, 4> a;
    std::array<uint32_t, 2> b;
  };
  const Fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emulation::Deposit(0xffffffffu, &mine, sizeof(mine));
  const auto of_lane = [](int lane) {
    Fragments f;
    std::memcpy(&f, emulation::Deposited(lane), sizeof(f));
    return f;
  };
  const int g = emulation::Lane() / 4, t = emulation::Lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), col = 2 * t + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; ++k) {
      const uint32_t pa = of_lane(row % 8 * 4 + k % 8 / 2).a[static_cast<size_t>(row / 8 + 2 * (k / 8))];
      const uint32_t pb = of_lane(col * 4 + k % 8 / 2).b[static_cast<size_t>(k / 8)];
      const double x = k % 2 == 0 ? LowerBf16(pa) : UpperBf16(pa);
      const double y = k % 2 == 0 ? LowerBf16(pb) : UpperBf16(pb);
      sum += x * y;
    }
    c[i] = static_cast<float>(sum);
  }
  emulation::EndExchange(0xffffffffu);
}

template <bool transposed>
void LoadMatricesEmulated(uint32_t (&r)[4], const void* row) {
  emulation::CheckAligned(row, 16);
  emulation::Deposit(0xffffffffu, &row, sizeof(row));
  const auto element = [](int matrix, int i, int k) {
    const unsigned char* start;
    std::memcpy(&start, emulation::Deposited(matrix * 8 + i), sizeof(start));
    uint16_t bits;
    std::memcpy(&bits, start + 2 * k, 2);
    return uint32_t{bits};
  };
  const int g = emulation::Lane() / 4, t = emulation::Lane() % 4;
  for (int m = 0; m < 4; ++m) {
    const uint32_t low = transposed ? element(m, 2 * t, g) : element(m, g, 2 * t);
    const uint32_t high = transposed ? element(m, 2 * t + 1, g) : element(m, g, 2 * t + 1);
    r[m] = low | high << 16;
  }
  emulation::EndExchange(0xffffffffu);
}

inline void LoadMatrices(uint32_t (&r)[4], const void* row) { LoadMatricesEmulated<false>(r, row); }
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) { LoadMatricesEmulated<true>(r, row); }

inline uint32_t PackBf16(float low, float high) {
  const auto bits = [](float x) { return uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(x))}; };
  return bits(low) | bits(high) << 16;
}

inline void AsyncCopy16(void* shared, const void* global, bool valid) {
  emulation::CheckAligned(shared, 16);
  if (valid) emulation::CheckAligned(global, 16);
  emulation::CopyLater(shared, valid ? global : nullptr, 16);
}
inline void AsyncCopiesEndGroup() { emulation::EndCopyGroup(); }
template <int pending>
void AsyncCopiesWait() {
  emulation::WaitForCopyGroups(pending);
}

}  // namespace holdfast::kernels
