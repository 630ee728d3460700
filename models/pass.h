#pragma once
// What modules share during one pass: the device, the size of the microbatch, and the residual stream between them.

#include <cstdint>

#include "absl/types/span.h"
#include "framework/nn/model.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

struct ContinuedBatch;

/// The weights, or the gradients, of one unit in its parameters' order.
using UnitTensors = absl::Span<const Tensor>;

/// Uses of random numbers inside a layer. Layer 0 is the embedding, layer l + 1 block l.
enum class RandomSite : uint32_t { kEmbedding = 0, kAttention = 1, kAttentionBranch = 2, kMlpBranch = 3, kRouter = 4 };
inline constexpr uint32_t kSitesPerLayer = 8;

struct Pass {
  kernels::Ops* ops = nullptr;
  Arena* arena = nullptr;
  DType dtype = DType::kF32;  // of activations and matrices
  int64_t batch = 0, sequence = 0;
  kernels::Documents documents = {};
  kernels::RandomKey random;
  float dropout_rate = 0;
  float loss_scale = 1, counted = 1;         // see PassContext
  const StatisticsLayout* layout = nullptr;  // of
  void* statistics = nullptr;                // what a training pass tells besides its losses; null = nothing
  PartStore* parts = nullptr;                // see PassContext
  bool training = false;
  const ContinuedBatch* continued = nullptr;  // whose rows these are: each is then a sequence of one row
  Tensor expert_counts = {};  // (L, E) int32 of a training pass: rows that chose each expert of each layer with some

  int64_t rows() const { return batch * sequence; }
  kernels::Positions positions() const { return {sequence, documents.begin}; }
  Tensor Activation(int64_t cols) const { return arena->Allocate(dtype, {rows(), cols}); }
  Tensor Floats(Shape shape) const { return arena->Allocate(DType::kF32, shape); }

  kernels::RandomKey KeyAt(int64_t layer, RandomSite site) const {
    kernels::RandomKey key = random;
    key.site = static_cast<uint32_t>(layer) * kSitesPerLayer + static_cast<uint32_t>(site);
    return key;
  }
  kernels::Dropout DropoutAt(int64_t layer, RandomSite site) const {
    return {.rate = dropout_rate, .key = KeyAt(layer, site)};
  }
};

/// The residual stream between two modules. Its value is residual + dropout(branch): the norm that reads it adds them,
/// in one sweep over memory.
struct ResidualStream {
  kernels::Matrix residual;  // (R, C)
  bool has_branch = false;   // said apart from `branch`, because a planning pass has no data
  kernels::Matrix branch;    // (R, C)
  kernels::Dropout dropout;
};

/// `pointer` + `elements`; null stays null, as in a planning pass, which has no data.
template <typename T>
T* Advance(T* pointer, int64_t elements) {
  return pointer == nullptr ? nullptr : pointer + elements;
}

/// Rows [first, first + count) of a tensor with or without data.
inline kernels::Matrix Rows(const Tensor& tensor, int64_t first, int64_t count) {
  kernels::Matrix rows = tensor.matrix();
  const int64_t bytes = first * rows.stride * static_cast<int64_t>(kernels::SizeOf(tensor.dtype));
  rows.data = Advance(static_cast<char*>(tensor.data), bytes);
  rows.rows = count;
  return rows;
}

/// Columns [first, first + count) of a matrix with or without data.
inline kernels::Matrix Columns(kernels::Matrix m, int64_t first, int64_t count) {
  m.data = Advance(static_cast<char*>(m.data), first * static_cast<int64_t>(kernels::SizeOf(m.dtype)));
  m.cols = count;
  return m;
}
inline kernels::ConstMatrix Columns(kernels::ConstMatrix m, int64_t first, int64_t count) {
  m.data = Advance(static_cast<const char*>(m.data), first * static_cast<int64_t>(kernels::SizeOf(m.dtype)));
  m.cols = count;
  return m;
}

}  // namespace holdfast
