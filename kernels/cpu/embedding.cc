#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/cache_control.h"
#include "kernels/cpu/calls.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Columns of one backward task: 8 cache lines of the fp32 tables.
constexpr int64_t kStripe = 128;

/// Rows whose table lines are asked for ahead: tokens name rows all over memory, where no hardware prefetcher looks.
constexpr int64_t kPrefetchRows = 4;

template <typename T, typename Table>
void ForwardRow(const EmbeddingForwardCall& call, const RowDropout& dropout, int64_t row) {
  const Eight d;
  const int64_t cols = call.out.cols;
  const bool has_position = call.position_table.data != nullptr;
  const Table* token = RowOf<Table>(call.token_table, call.tokens[row]);
  const Table* position = has_position ? RowOf<Table>(call.position_table, call.positions.At(row)) : nullptr;
  T* out = RowOf<T>(call.out, row);
  const uint32_t* masks = dropout.Masks(row * cols);
  const auto scale = hn::Set(d, call.scale);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto entry = access.Load(d, token + c);
    const auto value = has_position ? hn::MulAdd(entry, scale, access.Load(d, position + c)) : hn::Mul(entry, scale);
    access.Store(d, dropout.Apply(value, masks + c), out + c);
  });
}

void EmbeddingForward(Executor& executor, const EmbeddingForwardCall& call, const Dropout& dropout) {
  const int64_t cols = call.out.cols;
  const Pieces pieces = PiecesOfRows(call.out.rows, cols);
  const size_t bytes = static_cast<size_t>(KeepMaskSize(cols)) * sizeof(uint32_t);
  ParallelForWithScratch(executor, pieces.count(), bytes, [&](int64_t task, void* masks) HWY_ATTR {
    const RowDropout rows(dropout, cols, static_cast<uint32_t*>(masks));
    const Range range = pieces.piece(task);
    WithType(call.out.dtype, [&](auto out_type) {
      WithType(call.token_table.dtype, [&](auto table_type) {
        for (int64_t r = range.begin; r < range.end; ++r) {
          ForwardRow<decltype(out_type), decltype(table_type)>(call, rows, r);
        }
      });
    });
  });
}

/// Columns [c0, c0 + dropout's columns) of row `row`.
template <typename T>
void BackwardRow(const EmbeddingBackwardCall& call, const RowDropout& dropout, int64_t row, Range columns) {
  const Eight d;
  const int64_t c0 = columns.begin;
  const bool has_token = call.d_token_table.data != nullptr, has_position = call.d_position_table.data != nullptr;
  const T* d_out = RowOf<T>(call.d_out, row) + c0;
  float* token = has_token ? RowOf<float>(call.d_token_table, call.tokens[row]) + c0 : nullptr;
  float* position = has_position ? RowOf<float>(call.d_position_table, call.positions.At(row)) + c0 : nullptr;
  const uint32_t* masks = dropout.Masks(row * call.d_out.cols + c0);
  const auto scale = hn::Set(d, call.scale);
  ForVectors(d, columns.end - c0, [&](int64_t c, auto access) HWY_ATTR {
    const auto value = dropout.Apply(access.Load(d, d_out + c), masks + c);
    if (has_token) access.Store(d, hn::MulAdd(value, scale, access.Load(d, token + c)), token + c);
    if (has_position) access.Store(d, hn::Add(access.Load(d, position + c), value), position + c);
  });
}

void PrefetchRow(const EmbeddingBackwardCall& call, int64_t row, Range columns) {
  if (row >= call.d_out.rows || call.d_token_table.data == nullptr) return;
  const float* token = RowOf<float>(call.d_token_table, call.tokens[row]);
  for (int64_t c = columns.begin; c < columns.end; c += 16) hwy::Prefetch(token + c);
}

// A table row is added to as often as its token occurs. Each task owns a stripe of columns and walks all rows in order,
// so each sum has one fixed order, and no two tasks write the same element.
void EmbeddingBackward(Executor& executor, const EmbeddingBackwardCall& call, const Dropout& dropout) {
  const Pieces stripes = {call.d_out.cols, kStripe};
  const size_t bytes = static_cast<size_t>(KeepMaskSize(kStripe)) * sizeof(uint32_t);
  ParallelForWithScratch(executor, stripes.count(), bytes, [&](int64_t task, void* masks) HWY_ATTR {
    const Range columns = stripes.piece(task);
    const RowDropout rows(dropout, columns.end - columns.begin, static_cast<uint32_t*>(masks));
    WithType(call.d_out.dtype, [&](auto type) {
      for (int64_t r = 0; r < call.d_out.rows; ++r) {
        PrefetchRow(call, r + kPrefetchRows, columns);
        BackwardRow<decltype(type)>(call, rows, r, columns);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(EmbeddingForward);
HWY_EXPORT(EmbeddingBackward);

void CpuOps::EmbeddingForward(Matrix out, const int32_t* tokens, ConstMatrix token_table, ConstMatrix position_table,
                              const Positions& positions, const Dropout& dropout, float scale) {
  HWY_DYNAMIC_DISPATCH(EmbeddingForward)
  (executor_, {out, tokens, token_table, position_table, positions, scale}, dropout);
}

void CpuOps::EmbeddingBackward(Matrix d_token_table, Matrix d_position_table, const int32_t* tokens, ConstMatrix d_out,
                               const Positions& positions, const Dropout& dropout, float scale) {
  HWY_DYNAMIC_DISPATCH(EmbeddingBackward)
  (executor_, {d_token_table, d_position_table, tokens, d_out, positions, scale}, dropout);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
