#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

template <bool kAdd, typename T>
void DropRow(const RowDropout& dropout, T* out, const T* in, int64_t row, int64_t cols) {
  const Eight d;
  const uint32_t* masks = dropout.Masks(row * cols);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    auto value = dropout.Apply(access.Load(d, in + c), masks + c);
    if constexpr (kAdd) value = hn::Add(access.Load(d, out + c), value);
    access.Store(d, value, out + c);
  });
}

template <bool kAdd>
void DropRows(Executor& executor, const Matrix& out, const ConstMatrix& in, const Dropout& dropout) {
  const Pieces pieces = PiecesOfRows(in.rows, in.cols);
  const size_t bytes = static_cast<size_t>(KeepMaskSize(in.cols)) * sizeof(uint32_t);
  ParallelForWithScratch(executor, pieces.count(), bytes, [&](int64_t task, void* masks) HWY_ATTR {
    const RowDropout rows(dropout, in.cols, static_cast<uint32_t*>(masks));
    const Range range = pieces.piece(task);
    WithType(in.dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t r = range.begin; r < range.end; ++r) {
        DropRow<kAdd>(rows, RowOf<T>(out, r), RowOf<T>(in, r), r, in.cols);
      }
    });
  });
}

void ApplyDropout(Executor& executor, const Matrix& out, const ConstMatrix& in, const Dropout& dropout) {
  DropRows<false>(executor, out, in, dropout);
}

void AddDropout(Executor& executor, const Matrix& sum, const ConstMatrix& in, const Dropout& dropout) {
  DropRows<true>(executor, sum, in, dropout);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(ApplyDropout);
HWY_EXPORT(AddDropout);

void CpuOps::ApplyDropout(Matrix out, ConstMatrix in, const Dropout& dropout) {
  HWY_DYNAMIC_DISPATCH(ApplyDropout)(executor_, out, in, dropout);
}

void CpuOps::AddDropout(Matrix sum, ConstMatrix in, const Dropout& dropout) {
  HWY_DYNAMIC_DISPATCH(AddDropout)(executor_, sum, in, dropout);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
