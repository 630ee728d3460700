#pragma once
// Adapters (models/adapter.h) as PEFT keeps them: a directory of adapter_config.json and adapter_model.safetensors, and
// of a tokenizer if they have one of their own.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// The name of a matrix in adapter_model.safetensors is kAdapterPrefix, the layer's, and one of these.
inline constexpr char kAdapterPrefix[] = "base_model.model.", kAdapterA[] = ".lora_A.weight",
                      kAdapterB[] = ".lora_B.weight";
/// In its metadata: of the weights that the adapters are for (InitialWeightsDigest).
inline constexpr char kBaseDigestKey[] = "base_digest";
/// Likewise, of adapters for a model with rope_scaling longrope: model.max_sequence_length of their run, which may be
/// another than that of the model.
inline constexpr char kMaxSequenceLengthKey[] = "max_sequence_length";

/// kMaxSequenceLengthKey of the adapters in `directory`; nothing if they do not say it, as those of PEFT.
/// InvalidArgument if it is no number.
absl::StatusOr<std::optional<int64_t>> LengthOfAdapter(const std::string& directory);

/// Writes the adapters of a config with lora, whose model has `layout`; `read` gives their values. Its tokenizer goes
/// with them where it is not that of the model they are for. The files get their names when all of them are on the
/// disk. `may_replace`: as in AdapterFiles.
absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype,
                         const std::function<absl::Status()>& may_replace = nullptr);

/// Rows of the matrix of an expert in a tensor of those of all.
struct ExpertElements {
  int64_t first = 0, step = 1;
  int64_t row = 1, row_step = 1;  // elements of a row, and in the tensor from one row to the next
  /// In the tensor, of element i of these rows.
  int64_t At(int64_t i) const { return first + i / row * row_step + i % row * step; }
};
/// Of A, (experts * rank, in), the matrices lie one after the other.
inline ExpertElements ElementsOfA(int64_t expert, int64_t elements) { return {.first = expert * elements}; }
/// Of B, (out, rank * experts), the experts' values of an element do. These rows are every `parts`-th, from `part` on.
inline ExpertElements ElementsOfB(int64_t expert, int64_t num_experts, int64_t rank, int64_t part, int64_t parts) {
  const int64_t row = rank * num_experts;
  return {.first = part * row + expert, .step = num_experts, .row = rank, .row_step = parts * row};
}

/// A tensor of adapter_model.safetensors, and rows of parameters that it is made of.
struct AdapterTensor {
  struct Piece {
    int parameter = 0;
    int64_t first_row = 0, rows = 0;
    ExpertElements elements = {};
  };
  std::string name;
  Shape shape;
  std::vector<Piece> pieces = {};
};

/// Of a config with lora, whose model has `layout`.
absl::StatusOr<std::vector<AdapterTensor>> AdapterTensors(const Config& config, const ParameterLayout& layout);

}  // namespace holdfast
