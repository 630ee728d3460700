#pragma once
// fp32 to and from the 16-bit formats of files, in loops that compilers vectorise. Numbers only: NaN, infinity and
// values beyond the format's range are found and reported by index, never converted.

#include <cstdint>

#include "checkpoint/safetensors.h"

namespace holdfast {

/// Bytes of one element; `dtype` is not kOther.
constexpr int64_t BytesPerElement(FileDType dtype) { return dtype == FileDType::kF32 ? 4 : 2; }

/// out[i] = element i of `data` (little endian, any alignment). Returns -1, or the index of the first element that is
/// NaN or infinite; `out` is undefined then.
int64_t DecodeFloats(FileDType dtype, const uint8_t* data, absl::Span<float> out);

/// The opposite, rounding to nearest even; for kF16 and kBF16. Returns -1, or the index of the first element that is
/// NaN or infinite or would become so.
int64_t EncodeHalves(FileDType dtype, absl::Span<const float> values, uint16_t* out);

/// Index of the first NaN or infinity, or -1.
int64_t FindNonFinite(absl::Span<const float> values);

}  // namespace holdfast
