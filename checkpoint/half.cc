#include "checkpoint/half.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace holdfast {
namespace {

constexpr uint32_t kF32Exponent = 0x7f800000u;
constexpr uint32_t kF16Exponent = 0x7c00u;
constexpr size_t kLongBlock = 1024;  // elements at a time: input and output stay in the first-level cache
constexpr size_t kShortBlock = 64;   // of what is left, and of the short runs of a transposed matrix

// Select without a branch: compilers keep floating-point operations out of vectorised branches, which could trap.
uint32_t Select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

// Finite halves only. A subnormal half is its mantissa over 2^24, never a subnormal float on the way, so that
// flush-to-zero modes do not matter.
float F16ToF32(uint32_t half) {
  const uint32_t normal = ((half & 0x7fffu) << 13) + (112u << 23);
  const float subnormal = static_cast<float>(static_cast<int32_t>(half & 0x3ffu)) * 0x1p-24f;
  const uint32_t magnitude = Select((half & kF16Exponent) != 0, normal, std::bit_cast<uint32_t>(subnormal));
  return std::bit_cast<float>(magnitude | (half & 0x8000u) << 16);
}

// To nearest even; 0x7c00 for what a half cannot hold. Below 2^-14 the addition of 0.5 rounds at the right bit.
uint32_t F32ToF16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t small = Select(magnitude < (113u << 23), subnormal, normal);
  const uint32_t half = Select(magnitude >= 0x47800000u, kF16Exponent, small);  // 65536 and more
  return half | (bits >> 16 & 0x8000u);
}

uint32_t F32ToBf16(uint32_t bits) { return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16; }

uint32_t IsNonFiniteF16(uint32_t half) { return (half & kF16Exponent) == kF16Exponent ? 1u : 0u; }

uint32_t IsNonFinite(uint32_t bits) { return (bits & kF32Exponent) == kF32Exponent ? 1u : 0u; }

// out[i] = Convert::Value(in[i]) in blocks of a fixed length and without aliasing, which is what compilers vectorise at
// -O2. Index of the first element that Convert::IsBad, or -1.
template <typename Convert, size_t kBlock>
int64_t ConvertBlocks(const uint8_t* in, int64_t n, typename Convert::Out* out) {
  using In = typename Convert::In;
  using Out = typename Convert::Out;
  std::array<In, kBlock> from;
  std::array<Out, kBlock> to;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kBlock, n - begin));
    if (count < kBlock) from.fill(0);
    std::memcpy(from.data(), in + static_cast<size_t>(begin) * sizeof(In), count * sizeof(In));
    uint32_t bad = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      to[i] = Convert::Value(from[i]);
      bad |= Convert::IsBad(from[i], to[i]);
    }
    if (out != nullptr) std::memcpy(out + begin, to.data(), count * sizeof(Out));
    if (bad == 0) continue;
    size_t first = 0;
    while (Convert::IsBad(from[first], to[first]) == 0) ++first;
    return begin + static_cast<int64_t>(first);
  }
  return -1;
}

template <typename Convert>
int64_t ConvertAll(const uint8_t* in, int64_t n, typename Convert::Out* out) {
  const int64_t whole = n - n % static_cast<int64_t>(kLongBlock);
  const int64_t bad = ConvertBlocks<Convert, kLongBlock>(in, whole, out);
  if (bad >= 0 || whole == n) return bad;
  in += static_cast<size_t>(whole) * sizeof(typename Convert::In);
  const int64_t bad_of_rest = ConvertBlocks<Convert, kShortBlock>(in, n - whole, out == nullptr ? out : out + whole);
  return bad_of_rest < 0 ? bad_of_rest : whole + bad_of_rest;
}

struct DecodeF32 {
  using In = uint32_t;
  using Out = float;
  static float Value(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t IsBad(uint32_t bits, float) { return IsNonFinite(bits); }
};

struct DecodeF16 {
  using In = uint16_t;
  using Out = float;
  static float Value(uint32_t half) { return F16ToF32(half); }
  static uint32_t IsBad(uint32_t half, float) { return IsNonFiniteF16(half); }
};

struct DecodeBf16 {
  using In = uint16_t;
  using Out = float;
  static float Value(uint32_t half) { return std::bit_cast<float>(half << 16); }
  static uint32_t IsBad(uint32_t half, float) { return IsNonFinite(half << 16); }
};

struct EncodeF16 {
  using In = uint32_t;
  using Out = uint16_t;
  static uint16_t Value(uint32_t bits) { return static_cast<uint16_t>(F32ToF16(bits)); }
  static uint32_t IsBad(uint32_t, uint32_t half) { return IsNonFiniteF16(half); }
};

struct EncodeBf16 {
  using In = uint32_t;
  using Out = uint16_t;
  static uint16_t Value(uint32_t bits) { return static_cast<uint16_t>(F32ToBf16(bits)); }
  static uint32_t IsBad(uint32_t bits, uint32_t half) { return IsNonFinite(bits) | IsNonFinite(half << 16); }
};

const uint8_t* BytesOf(absl::Span<const float> values) { return reinterpret_cast<const uint8_t*>(values.data()); }

}  // namespace

int64_t DecodeFloats(FileDType dtype, const uint8_t* data, absl::Span<float> out) {
  const auto n = static_cast<int64_t>(out.size());
  if (dtype == FileDType::kF16) return ConvertAll<DecodeF16>(data, n, out.data());
  if (dtype == FileDType::kBF16) return ConvertAll<DecodeBf16>(data, n, out.data());
  return ConvertAll<DecodeF32>(data, n, out.data());
}

int64_t EncodeHalves(FileDType dtype, absl::Span<const float> values, uint16_t* out) {
  const auto n = static_cast<int64_t>(values.size());
  if (dtype == FileDType::kF16) return ConvertAll<EncodeF16>(BytesOf(values), n, out);
  return ConvertAll<EncodeBf16>(BytesOf(values), n, out);
}

int64_t FindNonFinite(absl::Span<const float> values) {
  return ConvertAll<DecodeF32>(BytesOf(values), static_cast<int64_t>(values.size()), nullptr);
}

}  // namespace holdfast
