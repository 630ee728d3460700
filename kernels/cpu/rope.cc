#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "kernels/cpu/calls.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// (a, b) = (x[i], x[i + half]) becomes (a cos - b sin, b cos + a sin); the inverse has -sin.
template <typename T>
void RotateHead(T* x, const float* cosines, const float* sines, int64_t half, bool inverse) {
  const Eight d;
  const auto sign = hn::Set(d, inverse ? -1.0f : 1.0f);
  ForVectors(d, half, [&](int64_t i, auto access) HWY_ATTR {
    const auto cosine = access.Load(d, cosines + i);
    const auto sine = hn::Mul(access.Load(d, sines + i), sign);
    const auto a = access.Load(d, x + i), b = access.Load(d, x + half + i);
    access.Store(d, hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), x + i);
    access.Store(d, hn::MulAdd(a, sine, hn::Mul(b, cosine)), x + half + i);
  });
}

void Rope(Executor& executor, const RopeCall& call) {
  const RotaryHeads& heads = call.heads;
  const int64_t half = heads.turned / 2;
  const Pieces pieces = PiecesOfRows(call.x.rows, heads.count * heads.width);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) HWY_ATTR {
    const Range range = pieces.piece(task);
    WithType(call.x.dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t r = range.begin; r < range.end; ++r) {
        const float* cosines = call.cos_sin + call.positions.At(r) * heads.turned;
        T* x = RowOf<T>(call.x, r);
        for (int64_t h = 0; h < heads.count; ++h) {
          RotateHead(x + h * heads.width, cosines, cosines + half, half, call.inverse);
        }
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Rope);

void CpuOps::Rope(Matrix x, const float* cos_sin, const RotaryHeads& heads, const Positions& positions, bool inverse) {
  HWY_DYNAMIC_DISPATCH(Rope)(executor_, {x, cos_sin, heads, positions, inverse});
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
