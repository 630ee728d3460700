// What happens to a finished tile of a GEMM on its way to memory: + C, + bias, which may be weighed row by row, GELU,
// rounding to the storage type.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::CappedTag<float, kLanes>;
using TileVec = hn::Vec<TileTag>;

/// A product, and what multiplies its bias in each row: bias_weights[choices[row]], or 1 without weights.
struct ProductArgs : GemmArgs {
  const float* bias_weights = nullptr;
  const int32_t* choices = nullptr;
};

inline float BiasWeight(const ProductArgs& args, int64_t row) {
  return args.bias_weights == nullptr ? 1.0f : args.bias_weights[args.choices[row]];
}

HWY_INLINE void StoreAs(DType dtype, TileVec value, void* row, int64_t column) {
  if (dtype == DType::kF32) {
    hn::StoreU(value, TileTag(), static_cast<float*>(row) + column);
  } else {
    StoreBf16(TileTag(), value, static_cast<uint16_t*>(row) + column);
  }
}

HWY_INLINE TileVec LoadAs(DType dtype, const void* row, int64_t column) {
  if (dtype == DType::kF32) return hn::LoadU(TileTag(), static_cast<const float*>(row) + column);
  return LoadBf16(TileTag(), static_cast<const uint16_t*>(row) + column);
}

/// kCols values of one row: `c`, `pre_gelu` (may be null) and `bias` (may be null) point at the first of them.
template <int kCols>
HWY_INLINE void FinishRow(const GemmArgs& args, const float* sum, const float* bias, float bias_weight, void* c,
                          void* pre_gelu) {
  const TileTag d;
  for (int64_t v = 0; v < kCols; v += kLanes) {
    TileVec value = hn::LoadU(d, sum + v);
    if (args.accumulate) value = hn::Add(value, LoadAs(args.c.dtype, c, v));
    if (bias != nullptr) value = hn::MulAdd(hn::Set(d, bias_weight), hn::LoadU(d, bias + v), value);
    if (args.gelu) {
      if (pre_gelu != nullptr) StoreAs(args.pre_gelu.dtype, value, pre_gelu, v);
      value = Gelu(d, value);
    }
    StoreAs(args.c.dtype, value, c, v);
  }
}

HWY_INLINE char* ElementAt(const Matrix& m, int64_t row, int64_t col) {
  return static_cast<char*>(m.data) + (row * m.stride + col) * static_cast<int64_t>(SizeOf(m.dtype));
}

/// Of C, beyond which it is not found in any cache by whoever reads it next.
constexpr int64_t kCachedBytesMax = int64_t{64} << 20;

/// Whether a microkernel can write C: the sums as they are, or rounded, or added to fp32.
inline bool IsWrittenAtOnce(const GemmArgs& args) {
  return args.bias == nullptr && !args.gelu && (!args.accumulate || args.c.dtype == DType::kF32);
}

/// Whether C, sums as they are, goes past the caches: a weight gradient is large and read at the end of the step at the
/// earliest, logits are larger than a cache, and lines that are overwritten whole need not be read first. Readers in
/// other threads need a hwy::FlushStream before.
inline bool StreamsC(const GemmArgs& args) {
  const bool leaves_cache = args.transpose_a || args.c.rows * args.c.stride * 4 > kCachedBytesMax;
  return leaves_cache && IsWrittenAtOnce(args) && !args.accumulate && args.c.dtype == DType::kF32 &&
         reinterpret_cast<uintptr_t>(args.c.data) % 64 == 0 && args.c.stride % 16 == 0;
}

/// Writes `rows` rows and `cols` (at most kCols) columns of `tile` (rows, kCols) to C at (row0, col0). A narrow tile
/// takes the same path in a padded copy, so its bits are those of a whole one.
template <int kCols>
HWY_INLINE void WriteTile(const ProductArgs& args, const float* tile, int64_t row0, int64_t col0, int64_t rows,
                          int64_t cols) {
  const float* bias = args.bias == nullptr ? nullptr : args.bias + col0;
  const bool keep_input = args.gelu && args.pre_gelu.data != nullptr;
  if (cols == kCols) {
    for (int64_t r = 0; r < rows; ++r) {
      FinishRow<kCols>(args, tile + r * kCols, bias, BiasWeight(args, row0 + r), ElementAt(args.c, row0 + r, col0),
                       keep_input ? ElementAt(args.pre_gelu, row0 + r, col0) : nullptr);
    }
    return;
  }
  const size_t count = static_cast<size_t>(cols);
  float padded_bias[kCols] = {}, padded_c[kCols] = {}, padded_pre_gelu[kCols] = {};
  if (bias != nullptr) std::memcpy(padded_bias, bias, count * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    char* c = ElementAt(args.c, row0 + r, col0);
    if (args.accumulate) std::memcpy(padded_c, c, count * SizeOf(args.c.dtype));
    FinishRow<kCols>(args, tile + r * kCols, bias == nullptr ? nullptr : padded_bias, BiasWeight(args, row0 + r),
                     padded_c, keep_input ? padded_pre_gelu : nullptr);
    std::memcpy(c, padded_c, count * SizeOf(args.c.dtype));
    if (keep_input) {
      std::memcpy(ElementAt(args.pre_gelu, row0 + r, col0), padded_pre_gelu, count * SizeOf(args.pre_gelu.dtype));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
