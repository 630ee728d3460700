#pragma once
// What becomes of a model that adapters are added to.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"
#include "models/runtime/adapter_config.h"

namespace holdfast {

/// What adapters add to the weights of a model. Immutable.
class AdapterDeltas {
 public:
  /// scale * b a is added to rows [first_row, first_row + rows) of a parameter.
  struct LowRank {
    int parameter = 0;
    int64_t first_row = 0, rows = 0, rank = 0;
    float scale = 1;
    std::string module = {};            // in the file, of one that was read
    std::vector<float> a = {}, b = {};  // (rank, in), (rows, rank)
  };

  /// Of a directory, for a saved model of config `model`: InvalidArgument if adapters are of another kind than these,
  /// for another model (a name or a shape that it does not have, or, if `base_digest` is not empty, if they name
  /// another one), or two of them for one layer.
  static absl::StatusOr<AdapterDeltas> Read(const std::string& directory, const ModelConfig& model,
                                            const std::string& base_digest);
  /// Of a config with lora, as SaveAdapter.
  static absl::StatusOr<AdapterDeltas> Of(const Config& config, const ParameterLayout& layout,
                                          const ReadWeightsFn& read);

  /// Adds them to values [first, first + out.size()), all of one parameter, of the model's flat vector without adapters
  /// (TransformerLayout).
  void AddTo(const ParameterLayout& layout, int64_t first, absl::Span<float> out) const;

  const std::vector<LowRank>& all() const { return all_; }

 private:
  /// What a module in a file of adapters is for.
  struct Target {
    std::string name;              // of the module or parameter, by which its rank and scale are said
    std::vector<LowRank> weights;  // of one layer, or of all experts of one; without values
    int64_t parts = 1;             // AdaptedLayer::parts
  };
  /// By the names of modules in files of adapters of this kind.
  static std::map<std::string, Target> TargetsOf(const ModelConfig& model, const ParameterLayout& layout,
                                                 const AdapterKind& kind);

  /// Adds the pair of `module` in a file, which is for `target`.
  absl::Status ReadPair(const SafetensorsReader& file, const std::string& module, const RankAndScale& kind,
                        const ParameterLayout& layout, Target target);

  std::vector<LowRank> all_;
};

}  // namespace holdfast
