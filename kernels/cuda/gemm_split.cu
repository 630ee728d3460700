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

bool MaySplit(const GemmArgs& args) {
  const bool has_epilogue =
      args.bias != nullptr || args.gelu || args.gelu_input.data != nullptr || args.a_sums != nullptr;
  return !has_epilogue && args.a.dtype == DType::kBF16 && args.b.dtype == DType::kBF16 && HasAlignedRows(args.a) &&
         HasAlignedRows(args.b) && HasAlignedRows(args.c);
}

}  // namespace

std::vector<GemmArgs> InWholeChunks(const GemmArgs& args) {
  const int64_t m = args.c.rows, n = args.c.cols, k = args.transpose_a ? args.a.rows : args.a.cols;
  if (!MaySplit(args) || m * n * k < kLeastProducts) return {args};
  std::vector<GemmArgs> parts;
  const auto add = [&](const GemmArgs& part) {
    for (const GemmArgs& of_part : InWholeChunks(part)) parts.push_back(of_part);
  };
  const auto whole = [](int64_t size) { return size / kChunk * kChunk; };
  // Sizes along rows in memory: of c, of a, and of a or b.
  if (whole(n) != n) {
    add(OfColumns(args, {0, whole(n)}));
    add(OfColumns(args, {whole(n), n}));
  } else if (args.transpose_a && whole(m) != m) {
    add(OfRows(args, {0, whole(m)}));
    add(OfRows(args, {whole(m), m}));
  } else if ((!args.transpose_a || args.transpose_b) && whole(k) != k) {
    add(OfDepth(args, {whole(k), k}));
    GemmArgs most = OfDepth(args, {0, whole(k)});
    most.accumulate = true;
    add(most);
  } else {
    return {args};
  }
  return parts;
}

}  // namespace holdfast::kernels
