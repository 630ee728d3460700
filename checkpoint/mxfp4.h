#pragma once
// Weights in MXFP4 (OCP Microscaling Formats 1.0), as published files of gpt-oss have them: rows in blocks of 32
// values.
//
//   block, 16 bytes    32 values of 4 bits (E2M1: sign, two bits of exponent, one of mantissa), in each byte the lower
//                      half first
//   scale, one byte    an exponent: the block's values are multiplied by 2^(scale - 127)
//
// In a file the blocks are a tensor of bytes (..., rows, cols / 32, 16), the scales one of (..., rows, cols / 32).

#include <cstdint>

#include "absl/types/span.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

inline constexpr int64_t kMxfp4Bytes = kMxfp4Values / 2;  // of a block

/// The values of scales.size() blocks, exactly. `out`: kMxfp4Values for each scale, `blocks`: kMxfp4Bytes. What is
/// beyond fp32, and all values of a scale of 255, which stands for NaN, are infinite or NaN.
void DecodeMxfp4(absl::Span<const uint8_t> blocks, absl::Span<const uint8_t> scales, absl::Span<float> out);

}  // namespace holdfast
