// Gradients of the embedding tables: each row of a table has the rows of d_out added that used it, in their order.
//
// The rows of d_out are first grouped by token, and by position where documents begin at any row. Where a group lies is
// settled by atomics and may differ from run to run; what is in it, and in which order, may not. Then a warp adds up to
// kChunk rows of a group; a longer group has partial sums, added in order by a third step. So a token that is
// everywhere delays no warp, and the association depends on the tokens alone.
//
// Reads d_out once for each table, and reads and writes those rows of the tables that occur.

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kChunk = kWarpSize;

/// A row of d_out in its group.
struct alignas(16) Member {
  int32_t row, entry;
  int32_t rank, size;  // among the group's rows, in order; of the group
};

struct Grouping {
  const int32_t* entries;  // (R) of the table, by row of d_out
  int32_t rows;
  int32_t* size;       // (V) of each entry's group
  int32_t* taken;      // (1) how much of `members` is
  int32_t* start;      // (V) of each group in `unordered` and `members`
  int32_t* arrival;    // (R) number of a row in its group, in no particular order
  int32_t* unordered;  // (R)
  Member* members;     // (R)
};

__global__ void CountKernel(Grouping g) {
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row < g.rows) g.arrival[row] = atomicAdd(&g.size[g.entries[row]], 1);
}

// The first to have arrived takes room for its group; a warp takes that of its rows together.
__global__ void TakeRoomKernel(Grouping g) {
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool first = row < g.rows && g.arrival[row] == 0;
  const int32_t entry = first ? g.entries[row] : 0, size = first ? g.size[entry] : 0;
  int32_t up_to_here = size;
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const int32_t below = __shfl_up_sync(kWholeWarp, up_to_here, static_cast<unsigned>(offset));
    if (lane >= offset) up_to_here += below;
  }
  int32_t start = 0;
  if (lane == kWarpSize - 1 && up_to_here > 0) start = atomicAdd(g.taken, up_to_here);
  start = __shfl_sync(kWholeWarp, start, kWarpSize - 1) + up_to_here - size;
  if (first) g.start[entry] = start;
}

__global__ void PlaceKernel(Grouping g) {
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row < g.rows) g.unordered[g.start[g.entries[row]] + g.arrival[row]] = row;
}

// A row's rank is the number of those before it. Neighbouring threads do the same group, all reading the same: what is
// the square of a group's size is a few microseconds for the commonest entry of a text.
__global__ void OrderKernel(Grouping g) {
  const int32_t at = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= g.rows) return;
  const int32_t row = g.unordered[at], entry = g.entries[row], start = g.start[entry], size = g.size[entry];
  int32_t rank = 0;
#pragma unroll 16
  for (int32_t i = 0; i < size; ++i) rank += g.unordered[start + i] < row ? 1 : 0;
  g.members[start + rank] = {row, entry, rank, size};
}

template <typename T>
struct SumArgs {
  Rows<float> d_table;
  Rows<const T> d_out;
  const Member* members;
  float*
      partials;  // (R / kChunk + 1, C): of the chunk that starts in that part of `members` and is not its group's first
  int64_t rows, cols, sequence;
  DropoutMask mask;
  float scale;
};

/// A warp's columns: 32 packets.
struct Columns {
  int64_t col, count;
};
template <int n>
__device__ __forceinline__ Columns ColumnsOf(int64_t cols) {
  const int64_t col = (int64_t{blockIdx.y} * kWarpSize + threadIdx.x % kWarpSize) * n;
  return {col, cols - col};
}

__device__ __forceinline__ int64_t WarpOfGrid() { return int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize; }

/// Adds rows row_of(first) .. row_of(first + number - 1) of d_out, all loaded at once.
template <int number, bool whole, typename T, int n, typename RowOf>
__device__ __forceinline__ void AddRowsAtOnce(float (&sum)[n], const SumArgs<T>& a, const Columns& at, int64_t first,
                                              RowOf row_of) {
  const bool inside = at.count > 0;
  int64_t rows[number];
  Values<T, n> x[number];
#pragma unroll
  for (int k = 0; k < number; ++k) rows[k] = row_of(first + k);
#pragma unroll
  for (int k = 0; k < number; ++k) {
    x[k] = LoadPacket<whole, n>(a.d_out[rows[k]] + (inside ? at.col : 0), inside ? at.count : 0);
  }
#pragma unroll
  for (int k = 0; k < number; ++k) {
    float value[n];
    ToFloats(value, x[k]);
    Drop<whole>(a.mask, rows[k] * a.cols + at.col, value);
#pragma unroll
    for (int i = 0; i < n; ++i) sum[i] = fmaf(value[i], a.scale, sum[i]);
  }
}

/// Adds rows row_of(0) .. row_of(number - 1), in this order.
template <bool whole, typename T, int n, typename RowOf>
__device__ __forceinline__ void AddRows(float (&sum)[n], const SumArgs<T>& a, const Columns& at, int64_t number,
                                        RowOf row_of) {
  int64_t first = 0;
  for (; first + 4 <= number; first += 4) AddRowsAtOnce<4, whole>(sum, a, at, first, row_of);
  if (first + 2 <= number) {
    AddRowsAtOnce<2, whole>(sum, a, at, first, row_of);
    first += 2;
  }
  if (first < number) AddRowsAtOnce<1, whole>(sum, a, at, first, row_of);
}

// A warp for each member; those with which no chunk starts have nothing to do.
template <typename T, bool whole>
__global__ void __launch_bounds__(kThreads) AddChunksKernel(SumArgs<T> a) {
  constexpr int n = kPacket<T>;
  const int64_t at = WarpOfGrid();
  if (at >= a.rows) return;
  const Member first = a.members[at];
  if (first.rank % kChunk != 0) return;
  const int number = first.size - first.rank < kChunk ? first.size - first.rank : kChunk;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int32_t row_of_lane = lane < number ? a.members[at + lane].row : 0;

  const Columns columns = ColumnsOf<n>(a.cols);
  float* to = first.rank == 0 ? a.d_table[first.entry] : a.partials + at / kChunk * a.cols;
  float sum[n] = {};
  if (first.rank == 0 && columns.count > 0) ToFloats(sum, LoadPacket<whole, n>(to + columns.col, columns.count));
  AddRows<whole>(sum, a, columns, number,
                 [&](int64_t i) { return int64_t{__shfl_sync(kWholeWarp, row_of_lane, static_cast<int>(i))}; });
  if (columns.count > 0) StorePacket<whole>(to + columns.col, sum, columns.count);
}

// A warp for kChunk members: at most one of them starts its group's second chunk, as groups that have one are longer.
// The partial sums of its further chunks follow each other.
template <typename T, bool whole>
__global__ void __launch_bounds__(kThreads) AddPartialsKernel(SumArgs<T> a) {
  constexpr int n = kPacket<T>;
  const int64_t part = WarpOfGrid(), at = part * kChunk + threadIdx.x % kWarpSize;
  const Member mine = at < a.rows ? a.members[at] : Member{};
  const unsigned found = __ballot_sync(kWholeWarp, mine.rank == kChunk);
  if (found == 0) return;
  const int lane = __ffs(static_cast<int>(found)) - 1;
  const int32_t entry = __shfl_sync(kWholeWarp, mine.entry, lane), size = __shfl_sync(kWholeWarp, mine.size, lane);
  const Columns columns = ColumnsOf<n>(a.cols);
  if (columns.count <= 0) return;
  float* to = a.d_table[entry] + columns.col;
  const float* from = a.partials + part * a.cols + columns.col;
  float sum[n];
  ToFloats(sum, LoadPacket<whole, n>(to, columns.count));
  const int chunks = (size - 1) / kChunk;  // but the first
#pragma unroll 4
  for (int i = 0; i < chunks; ++i) {
    const auto x = LoadPacket<whole, n>(from + i * a.cols, columns.count);
#pragma unroll
    for (int k = 0; k < n; ++k) sum[k] += x[k];
  }
  StorePacket<whole>(to, sum, columns.count);
}

// A warp for each position.
template <typename T, bool whole>
__global__ void __launch_bounds__(kThreads) AddPositionsKernel(SumArgs<T> a) {
  constexpr int n = kPacket<T>;
  const int64_t position = WarpOfGrid();
  if (position >= a.sequence || position >= a.rows) return;
  const Columns columns = ColumnsOf<n>(a.cols);
  if (columns.count <= 0) return;
  float* to = a.d_table[position] + columns.col;
  float sum[n];
  ToFloats(sum, LoadPacket<whole, n>(to, columns.count));
  AddRows<whole>(sum, a, columns, (a.rows - position - 1) / a.sequence + 1,
                 [&](int64_t i) { return position + i * a.sequence; });
  StorePacket<whole>(to, sum, columns.count);
}

__global__ void PositionsKernel(int32_t* out, int32_t rows, Positions positions) {
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row < rows) out[row] = PositionOf(positions, row);
}

}  // namespace

void CudaOps::EmbeddingBackward(Matrix d_token_table, Matrix d_position_table, const int32_t* tokens, ConstMatrix d_out,
                                const Positions& positions, const Dropout& dropout, float scale) {
  const bool has_positions = d_position_table.data != nullptr, has_documents = positions.begin != nullptr;
  const int64_t rows = d_out.rows, cols = d_out.cols;
  const int64_t entries = std::max(d_token_table.rows, has_documents ? d_position_table.rows : 0);
  const int64_t partials = rows / kChunk + 1, integers = 2 * entries + 1 + 3 * rows;
  const size_t bytes = static_cast<size_t>(rows) * sizeof(Member) +
                       static_cast<size_t>(partials * cols) * sizeof(float) +
                       static_cast<size_t>(integers) * sizeof(int32_t);
  auto* const members = static_cast<Member*>(queue_.Scratch(bytes));
  if (members == nullptr) return;
  auto* const partial = reinterpret_cast<float*>(members + rows);
  auto* const size = reinterpret_cast<int32_t*>(partial + partials * cols);
  int32_t* const arrival = size + 2 * entries + 1;
  int32_t* const of_rows = arrival + 2 * rows;
  const auto launch_rows = [&](auto kernel, auto... arguments) {
    Launch(queue_, "EmbeddingBackward", {.blocks = Blocks(rows, kThreads), .threads = kThreads}, kernel, arguments...);
  };
  const auto group = [&](const int32_t* entry_of_row) {
    const Grouping grouping = {.entries = entry_of_row,
                               .rows = static_cast<int32_t>(rows),
                               .size = size,
                               .taken = size + entries,
                               .start = size + entries + 1,
                               .arrival = arrival,
                               .unordered = arrival + rows,
                               .members = members};
    Zero(size, static_cast<size_t>(entries + 1) * sizeof(int32_t));
    for (const auto step : {CountKernel, TakeRoomKernel, PlaceKernel, OrderKernel}) launch_rows(step, grouping);
  };
  WithElement(d_out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    SumArgs<T> args = {.d_table = RowsOf<float>(d_token_table),
                       .d_out = RowsOf<T>(d_out),
                       .members = members,
                       .partials = partial,
                       .rows = rows,
                       .cols = cols,
                       .sequence = positions.sequence,
                       .mask = MaskOf(dropout),
                       .scale = scale};
    const auto launch = [&](int64_t warps, auto kernel) {
      const dim3 blocks = {Blocks(warps, kWarps), Blocks(cols, n * kWarpSize)};
      Launch(queue_, "EmbeddingBackward", {.blocks = blocks, .threads = kThreads}, kernel, args);
    };
    const auto d_positions = RowsOf<float>(d_position_table);
    WithFlag(AllWhole<n>(cols, args.d_table, d_positions, args.d_out), [&](auto whole) {
      const auto add_groups = [&] {
        launch(rows, AddChunksKernel<T, whole.value>);
        if (rows > kChunk) launch(Blocks(rows, kChunk), AddPartialsKernel<T, whole.value>);
      };
      if (d_token_table.data != nullptr) {
        group(tokens);
        add_groups();
      }
      if (!has_positions) return;
      args.d_table = d_positions;
      args.scale = 1;
      if (!has_documents) return launch(std::min(positions.sequence, rows), AddPositionsKernel<T, whole.value>);
      launch_rows(PositionsKernel, of_rows, static_cast<int32_t>(rows), positions);
      group(of_rows);
      add_groups();
    });
  });
}

}  // namespace holdfast::kernels
