#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/jitter.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// JitterFactor of elements first .. first + n - 1. Uses KeepMaskSize(n) words of `buffer`, and returns where in it the
/// factor of `first` is.
HWY_INLINE const float* FillFactors(const RandomKey& key, float range, uint64_t first, int64_t n, float* buffer) {
  const Eight d;
  const hn::FixedTag<int32_t, 8> di;
  const auto one = hn::Set(d, 1.0f), scale = hn::Set(d, 0x1p-23f), by = hn::Set(d, range);
  const int64_t skip = static_cast<int64_t>(first % 4);
  uint64_t block = first / 4;
  for (int64_t i = 0; i < skip + n; i += kPhiloxBatch, block += kPhiloxBatch / 4) {
    hn::Vec<EightU32> words[4];
    PhiloxWords(key, block, words);
    for (int j = 0; j < 4; ++j) {
      const auto steps = hn::Sub(hn::BitCast(di, hn::ShiftRight<8>(words[j])), hn::Set(di, 1 << 23));
      const auto uniform = hn::Mul(hn::ConvertTo(d, steps), scale);
      hn::StoreU(hn::MulAdd(by, uniform, one), d, buffer + i + j * 8);
    }
  }
  return buffer + skip;
}

void Jitter(Executor& executor, const Matrix& out, const ConstMatrix& in, float range, const RandomKey& key) {
  const Pieces pieces = PiecesOfRows(in.rows, in.cols);
  const size_t bytes = static_cast<size_t>(KeepMaskSize(in.cols)) * sizeof(float);
  ParallelForWithScratch(executor, pieces.count(), bytes, [&](int64_t task, void* memory) HWY_ATTR {
    auto* const buffer = static_cast<float*>(memory);
    const Range rows = pieces.piece(task);
    WithType(in.dtype, [&](auto type) HWY_ATTR {
      using T = decltype(type);
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const Eight d;
        const float* factors = FillFactors(key, range, static_cast<uint64_t>(r * in.cols), in.cols, buffer);
        const T* from = RowOf<T>(in, r);
        float* to = RowOf<float>(out, r);
        ForVectors(d, in.cols, [&](int64_t c, auto access) HWY_ATTR {
          access.Store(d, hn::Mul(access.Load(d, from + c), access.Load(d, factors + c)), to + c);
        });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Jitter);

void CpuOps::Jitter(Matrix out, ConstMatrix in, float range, const RandomKey& key) {
  HWY_DYNAMIC_DISPATCH(Jitter)(executor_, out, in, range, key);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
