#pragma once
// What a model is made of, without its values: parameters in canonical order, grouped into units, cut into chunks.
// Everything here is a pure function of the model's config and never of the world.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

enum class InitKind : uint8_t { kNormal, kZeros, kConstant };

/// How a vector is changed that no gradient changes but counts of a step (of tokens, for each expert): value i rises by
/// `rate` where count first + i of the model's statistic is below the mean of the vector's counts, and falls by it
/// where it is above (arXiv 2408.15664).
struct Balance {
  std::string statistic;  // of kind Combine::kCount
  int64_t first = 0;
  float rate = 0;
};

struct ParameterSpec {
  std::string name;  // "blocks.3.attention.qkv.weight"
  Shape shape;       // matrices are (out, in), row-major
  InitKind init = InitKind::kZeros;
  float init_std = 0;      // of kNormal
  float init_value = 1;    // of kConstant
  bool fp32 = false;       // forward and backward read it in fp32, whatever the compute dtype (routers)
  bool decay = false;      // weight decay applies (matrices, not norms and biases)
  float lr_factor = 1;     // times the learning rate
  float decay_factor = 1;  // times the weight decay, which is multiplied by the learning rate and its factor, too
  float eps_factor = 1;    // times optimizer.eps
  float norm_factor = 1;   // its gradient times this counts in the norm of the gradient
  bool hidden = false;     // a matrix between hidden vectors: no embedding, no head
  // Rows of each of the matrices that lie below each other in this one (query, key, value); none: it is one.
  std::vector<int64_t> fused = {};
  std::optional<Balance> balance = std::nullopt;  // the model gives zeros as its gradient
  bool adapter = false;                           // is of no saved model, but added to one (LoRA)
  bool frozen = false;  // keeps the value it begins with: no gradient, no state (trained_part.h)
  int unit = 0;
  int part = -1;  // of a unit that is cut at parts (experts): which one it belongs to, 0, 1, ...; else -1
  // Set by ParameterLayout:
  int64_t offset = 0;       // of its first element in the model's flat vector
  int64_t unit_offset = 0;  // of its first element in its unit's flat vector

  bool is_matrix() const { return shape.rank() >= 2; }
  /// What forward and backward read: matrices in the compute dtype, vectors in fp32.
  DType ReadType(DType compute_dtype) const { return is_matrix() && !fp32 ? compute_dtype : DType::kF32; }
};

/// What all elements of a parameter that is not drawn at random begin with.
inline float InitialConstant(const ParameterSpec& parameter) {
  return parameter.init == InitKind::kConstant ? parameter.init_value : 0.0f;
}

/// The atom of ownership, transfer, gradient norm, compression and checksum: whole rows of one parameter, never
/// depending on the world.
struct Chunk {
  int parameter = 0;
  int64_t first_row = 0, num_rows = 0;
  int64_t offset = 0;  // of its first element in the model's flat vector
  int64_t elements = 0;
};

/// A unit is the set of parameters that are gathered, used and freed together: the embedding, each block, the head.
struct Unit {
  std::string name;
  int first_parameter = 0, num_parameters = 0;
  int first_chunk = 0, num_chunks = 0;
  int64_t offset = 0;  // in the model's flat vector
  int64_t elements = 0;
  /// The first chunk of each part, where the unit is cut at parts: what belongs to one part is never divided among
  /// ranks. Empty: it is cut at any chunk.
  std::vector<int> parts = {};
};

class ParameterLayout {
 public:
  /// Rows of a chunk: as many as fit this many elements (256 KiB of fp32), at least one. Small enough that the shards
  /// of a small model are balanced, large enough that a digest and a transfer per chunk cost nothing.
  static constexpr int64_t kChunkElements = int64_t{1} << 16;

  /// `parameters` in canonical order, units 0, 1, ... contiguous and ascending, and so the parts of each unit that has
  /// some; `unit_names` one per unit.
  ParameterLayout(std::vector<ParameterSpec> parameters, std::vector<std::string> unit_names);

  absl::Span<const ParameterSpec> parameters() const { return parameters_; }
  absl::Span<const Chunk> chunks() const { return chunks_; }
  absl::Span<const Unit> units() const { return units_; }
  int num_units() const { return static_cast<int>(units_.size()); }
  int64_t elements() const { return elements_; }
  /// Index of the parameter called `name`, or -1.
  int Find(const std::string& name) const;

 private:
  std::vector<ParameterSpec> parameters_;
  std::vector<Chunk> chunks_;
  std::vector<Unit> units_;
  int64_t elements_ = 0;
};

}  // namespace holdfast
