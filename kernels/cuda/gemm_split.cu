#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_split.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kChunk = 8;                         // bf16 values of 16 bytes
constexpr int64_t kLeastProducts = int64_t{1} << 26;  // a smaller one takes less time than starting another

struct Range {
  int64_t begin, end;
};

const void* Further(const void* data, size_t bytes) { return static_cast<const char*>(data) + bytes; }
void* Further(void* data, size_t bytes) { return static_cast<char*>(data) + bytes; }

template <class AnyMatrix>  // Matrix or ConstMatrix
AnyMatrix RowsIn(AnyMatrix m, Range range) {
  m.data = Further(m.data, static_cast<size_t>(range.begin * m.stride) * SizeOf(m.dtype));
  m.rows = range.end - range.begin;
  return m;
}
template <class AnyMatrix>
AnyMatrix ColumnsIn(AnyMatrix m, Range range) {
  m.data = Further(m.data, static_cast<size_t>(range.begin) * SizeOf(m.dtype));
  m.cols = range.end - range.begin;
  return m;
}

GemmArgs OfRows(GemmArgs args, Range range) {
  args.a = args.transpose_a ? ColumnsIn(args.a, range) : RowsIn(args.a, range);
  args.c = RowsIn(args.c, range);
  return args;
}
GemmArgs OfColumns(GemmArgs args, Range range) {
  args.b = args.transpose_b ? RowsIn(args.b, range) : ColumnsIn(args.b, range);
  args.c = ColumnsIn(args.c, range);
  return args;
}
GemmArgs OfDepth(GemmArgs args, Range range) {
  args.a = args.transpose_a ? RowsIn(args.a, range) : ColumnsIn(args.a, range);
  args.b = args.transpose_b ? ColumnsIn(args.b, range) : RowsIn(args.b, range);
  return args;
}

bool HasAlignedRows(const ConstMatrix& m) { return m.stride % kChunk == 0 && GemmAlignmentOf(m.data) == 16; }

bool HasEpilogue(const GemmArgs& args) {
  return args.bias != nullptr || args.gelu || args.gelu_input.data != nullptr || args.a_sums != nullptr;
}

int64_t WholeChunks(int64_t size) { return size / kChunk * kChunk; }

}  // namespace

GemmSplit SplitOf(const GemmArgs& args) {
  const int64_t m = args.c.rows, n = args.c.cols, k = args.transpose_a ? args.a.rows : args.a.cols;
  const bool gains = m * n * k >= kLeastProducts && args.a.dtype == DType::kBF16 && args.b.dtype == DType::kBF16 &&
                     HasAlignedRows(args.a) && HasAlignedRows(args.b) && HasAlignedRows(args.c);
  if (!gains || HasEpilogue(args)) return GemmSplit::kNone;
  // Sizes that are the length of rows in memory: of c; of a; of a or b.
  if (WholeChunks(n) != n) return GemmSplit::kColumns;
  if (WholeChunks(m) != m && args.transpose_a) return GemmSplit::kRows;
  if (WholeChunks(k) != k && (!args.transpose_a || args.transpose_b)) return GemmSplit::kDepth;
  return GemmSplit::kNone;
}

std::array<GemmArgs, 2> InTwo(const GemmArgs& args, GemmSplit split) {
  const auto cut = [&](int64_t size, auto part_of) {
    const int64_t whole = WholeChunks(size);
    return std::array<GemmArgs, 2>{part_of(args, {0, whole}), part_of(args, {whole, size})};
  };
  if (split == GemmSplit::kRows) return cut(args.c.rows, OfRows);
  if (split == GemmSplit::kColumns) return cut(args.c.cols, OfColumns);
  std::array<GemmArgs, 2> parts = cut(args.transpose_a ? args.a.rows : args.a.cols, OfDepth);
  parts[1].accumulate = true;
  return parts;
}

}  // namespace holdfast::kernels
