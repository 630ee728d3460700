#pragma once
// The decoder-only transformer that every family is a configuration of.

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "models/language_model.h"
#include "models/parameter_builder.h"

namespace holdfast {

/// What a transformer needs to know about a run, besides its shape.
struct TransformerOptions {
  DType compute_dtype = DType::kBF16;
  bool recompute_blocks = false;  // keep only each block's input; run its forward again in the backward pass
  /// Rows (B T) of logits that exist at once. Part of a run's bits: the projection's gradient is summed run by run.
  int64_t head_rows = 512;
  /// The experts' units are cut at experts, which a run needs that computes them where they lie. Decides no bits.
  bool cut_at_experts = false;
  LoraOptions lora = {};
  std::function<bool(const ParameterSpec&)> frozen = nullptr;  // null: nothing is; of a layer's experts all or none
  OptimizerKind optimizer = OptimizerKind::kAdamW;             // whose rules config.parametrization takes
  std::function<void(ParameterSpec&)> set_rates = nullptr;     // changes lr_factor and decay; null: as they are
};

/// `config` must be resolved (no zeros that stand for derived values).
/// Units: first embeddings (with the tied head), then blocks, each followed by its experts if it has some, last the
/// final norm (with an untied head). `device` provides memory for constant tables (RoPE).
absl::StatusOr<std::unique_ptr<LanguageModel>> MakeTransformer(const ModelConfig& config,
                                                               const TransformerOptions& options, Device& device);

/// The parameters of a transformer without building one, with initial values and rates as of the standard
/// parametrization.
ParameterLayout TransformerLayout(const ModelConfig& config, const LoraOptions& lora = {});

}  // namespace holdfast
