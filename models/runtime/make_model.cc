#include "models/runtime/make_model.h"

#include <algorithm>

#include "framework/base/status.h"
#include "models/plan.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

// Every run of rows reads and writes the whole fp32 gradient of the projection: on a GPU as much work as the products
// of 512 rows; 4096 hold 0.8 GiB of logits at GPT-2's vocabulary. On a CPU 512 (98 MiB) are enough.
constexpr int64_t kHeadRowsOnGpu = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> MakeModel(const Config& config, Device& device) {
  TransformerOptions options{
      .compute_dtype = config.train.compute_dtype == ComputeDType::kBF16 ? DType::kBF16 : DType::kF32,
      .recompute_blocks = config.train.recompute == RecomputeMode::kBlock,
      .cut_at_experts = MovesTokens(config)};
  ASSIGN_OR_RETURN(options.lora, LoraOptionsOf(config));
  ASSIGN_OR_RETURN(options.frozen, FrozenOf(config));
  options.optimizer = config.optimizer.name;
  ASSIGN_OR_RETURN(options.set_rates, RatesOf(config));
  if (config.train.device == DeviceKind::kCuda) options.head_rows = kHeadRowsOnGpu;
  // Rotary tables are as long as they are used: a config.json may say any length.
  ModelConfig model = config.model;
  if (model.position == PositionKind::kRope) {
    model.rope_short_factors = model.RopeFactors();  // of longrope: by the length that the config says
    model.max_sequence_length = std::min(model.max_sequence_length, config.batch.sequence_length);
  }
  return MakeTransformer(model, options, device);
}

}  // namespace holdfast
