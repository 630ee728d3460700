#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector.cc"
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

void CastToBf16(Executor& executor, uint16_t* out, const float* in, int64_t n) {
  const Pieces pieces = PiecesOfVector(n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) HWY_ATTR {
    const Wide d;
    const auto [begin, end] = pieces.piece(task);
    uint16_t* to = out + begin;
    const float* from = in + begin;
    ForVectors(d, end - begin,
               [&](int64_t i, auto access) HWY_ATTR { access.Store(d, access.Load(d, from + i), to + i); });
  });
}

void Add(Executor& executor, float* a, const float* b, int64_t n) {
  const Pieces pieces = PiecesOfVector(n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) HWY_ATTR {
    const Wide d;
    const auto [begin, end] = pieces.piece(task);
    float* to = a + begin;
    const float* from = b + begin;
    ForVectors(d, end - begin, [&](int64_t i, auto access) HWY_ATTR {
      access.Store(d, hn::Add(access.Load(d, to + i), access.Load(d, from + i)), to + i);
    });
  });
}

void Axpby(Executor& executor, float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  const Pieces pieces = PiecesOfVector(n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) HWY_ATTR {
    const Wide d;
    const auto a = hn::Set(d, alpha), b = hn::Set(d, beta);
    const auto [begin, end] = pieces.piece(task);
    float* to = out + begin;
    const float *from_x = x + begin, *from_y = y + begin;
    ForVectors(d, end - begin, [&](int64_t i, auto access) HWY_ATTR {
      access.Store(d, hn::MulAdd(a, access.Load(d, from_x + i), hn::Mul(b, access.Load(d, from_y + i))), to + i);
    });
  });
}

/// Four fp64 sums, of every fourth element; squares of fp32 values are exact in fp64.
HWY_INLINE double SumSquares(const float* x, int64_t n) {
  const hn::FixedTag<double, 4> dd;
  const Eight d;
  auto low = hn::Zero(dd), high = hn::Zero(dd);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    const auto v = access.Load(d, x + i);
    const auto a = hn::PromoteTo(dd, hn::LowerHalf(v)), b = hn::PromoteTo(dd, hn::UpperHalf(hn::Half<Eight>(), v));
    low = hn::MulAdd(a, a, low);
    high = hn::MulAdd(b, b, high);
  });
  alignas(32) double s[4];
  hn::Store(hn::Add(low, high), dd, s);
  return (s[0] + s[2]) + (s[1] + s[3]);
}

void ChunkSumSquares(Executor& executor, double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) {
  ParallelFor(executor, num_chunks, [&](int64_t chunk, int) HWY_ATTR {
    sums[chunk] = SumSquares(x + offsets[chunk], offsets[chunk + 1] - offsets[chunk]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {
namespace {

/// Bytes of one task of Zero and Copy.
constexpr int64_t kCopyBytes = int64_t{1} << 20;

}  // namespace

HWY_EXPORT(CastToBf16);
HWY_EXPORT(Add);
HWY_EXPORT(Axpby);
HWY_EXPORT(ChunkSumSquares);

void CpuOps::CastToBf16(uint16_t* out, const float* in, int64_t n) {
  HWY_DYNAMIC_DISPATCH(CastToBf16)(executor_, out, in, n);
}

void CpuOps::Add(float* a, const float* b, int64_t n) { HWY_DYNAMIC_DISPATCH(Add)(executor_, a, b, n); }

void CpuOps::Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Axpby)(executor_, out, alpha, x, beta, y, n);
}

void CpuOps::ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) {
  HWY_DYNAMIC_DISPATCH(ChunkSumSquares)(executor_, sums, x, offsets, num_chunks);
}

void CpuOps::Zero(void* data, size_t bytes) {
  const Pieces pieces = {static_cast<int64_t>(bytes), kCopyBytes};
  ParallelFor(executor_, pieces.count(), [&](int64_t task, int) {
    const auto [begin, end] = pieces.piece(task);
    std::memset(static_cast<char*>(data) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void CpuOps::Copy(void* out, const void* in, size_t bytes) {
  const Pieces pieces = {static_cast<int64_t>(bytes), kCopyBytes};
  ParallelFor(executor_, pieces.count(), [&](int64_t task, int) {
    const auto [begin, end] = pieces.piece(task);
    std::memcpy(static_cast<char*>(out) + begin, static_cast<const char*>(in) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
