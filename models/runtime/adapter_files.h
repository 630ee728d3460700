#pragma once
// Adapters (models/adapter.h) as PEFT keeps them, a directory of adapter_config.json and adapter_model.safetensors, and
// what becomes of a model they are added to.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Whether `directory` holds adapters.
bool HoldsAdapter(const std::string& directory);

/// The model that the adapters in `directory` are for, as they say.
absl::StatusOr<std::string> BaseModelOf(const std::string& directory);

/// Writes the adapters of a config with lora, whose model has `layout`; `read` gives their values. The files get their
/// names when all of them are on the disk.
absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype);

/// Which tensor of adapter_model.safetensors is which rows of a parameter of `layout`, the layout of a config with
/// lora.
absl::StatusOr<TensorMap> AdapterTensorMap(const Config& config, const ParameterLayout& layout);

/// What adapters add to the weights of a model. Immutable.
class AdapterDeltas {
 public:
  /// Of a directory, for a saved model of config `model`: InvalidArgument if adapters are of another kind than these,
  /// or for another model: a name or a shape that it does not have, or, if `base_digest` is not empty, if they name
  /// another one.
  static absl::StatusOr<AdapterDeltas> Read(const std::string& directory, const ModelConfig& model,
                                            const std::string& base_digest);
  /// Of a config with lora, as SaveAdapter.
  static absl::StatusOr<AdapterDeltas> Of(const Config& config, const ParameterLayout& layout,
                                          const ReadWeightsFn& read);

  /// Adds them to values [first, first + out.size()), all of one parameter, of the model's flat vector without adapters
  /// (TransformerLayout).
  void AddTo(const ParameterLayout& layout, int64_t first, absl::Span<float> out) const;

 private:
  /// scale * b a is added to rows [first_row, first_row + rows) of a parameter.
  struct LowRank {
    int parameter = 0;
    int64_t first_row = 0, rows = 0, rank = 0;
    std::vector<float> a = {}, b = {};  // (rank, in), (rows, rank)
  };

  float scale_ = 1;
  std::vector<LowRank> all_;
};

}  // namespace holdfast
