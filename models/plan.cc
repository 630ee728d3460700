#include "models/plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "framework/base/status.h"
#include "models/counting_ops.h"
#include "models/expert_bytes.h"
#include "models/expert_mlp.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

/// Hands out tensors with shapes and without data, and writes down who asked for what. Of parts, those of a rank that
/// is alone and has all.
class DryStore final : public UnitStore, public PartStore {
 public:
  DryStore(const Model& model, kernels::Ops& ops) : layout_(model.layout()), exchange_(ops) {
    for (const ParameterSpec& spec : layout_.parameters()) {
      weights_.push_back({nullptr, spec.ReadType(model.compute_dtype()), spec.shape});
      gradients_.push_back({nullptr, DType::kF32, spec.frozen ? Shape() : spec.shape});
    }
  }

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override {
    schedule_.push_back({StoreCall::Kind::kAcquire, unit});
    return Of(weights_, unit);
  }
  void Release(int unit) override { schedule_.push_back({StoreCall::Kind::kRelease, unit}); }
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override {
    schedule_.push_back({StoreCall::Kind::kBeginGradients, unit});
    return Of(gradients_, unit);
  }
  absl::Status EndGradients(int unit) override {
    schedule_.push_back({StoreCall::Kind::kEndGradients, unit});
    return absl::OkStatus();
  }

  Exchange& exchange() override { return exchange_; }
  absl::Span<const int> homes() const override { return kItself; }
  absl::Span<const int> nodes() const override { return kItself; }
  absl::Span<const int> ServersOf(int unit) const override {
    servers_.assign(layout_.units()[static_cast<size_t>(unit)].parts.size(), 0);
    return servers_;
  }
  absl::StatusOr<absl::Span<const Tensor>> PartWeights(int unit) override { return Of(weights_, unit); }
  absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int unit, int /*home*/) override {
    return BeginGradients(unit);
  }
  absl::Status EndPartGradients(int unit) override { return EndGradients(unit); }
  absl::Status Pause() override {
    schedule_.push_back({StoreCall::Kind::kPause, 0});
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* /*device*/, int64_t n) override {
    return std::vector<int32_t>(static_cast<size_t>(n));
  }
  absl::Status Put(absl::Span<const int32_t> /*values*/, int32_t* /*device*/) override { return absl::OkStatus(); }

  const UnitSchedule& schedule() const { return schedule_; }

 private:
  absl::Span<const Tensor> Of(const std::vector<Tensor>& tensors, int unit) const {
    const Unit& u = layout_.units()[static_cast<size_t>(unit)];
    return absl::MakeConstSpan(tensors).subspan(static_cast<size_t>(u.first_parameter),
                                                static_cast<size_t>(u.num_parameters));
  }

  static constexpr std::array<int, 1> kItself{0};

  const ParameterLayout& layout_;
  std::vector<Tensor> weights_, gradients_;
  UnitSchedule schedule_;
  LocalExchange exchange_;
  mutable std::vector<int> servers_;
};

constexpr char kTokenTable[] = "embedding.tokens.weight", kBlockUnit[] = "blocks.", kExpertsUnit[] = ".experts";

/// That model FLOPs utilisation counts for a token in a layer, counted from 1.
double SeenKeys(const ModelConfig& config, int64_t layer, int64_t sequence) {
  const int64_t own = config.WindowOf(layer), window = own > 0 ? std::min(own, sequence) : sequence;
  // Over a sequence, the pairs that a causal query sees, twice, but those of a query with itself once.
  const auto pairs = static_cast<double>(2 * window * sequence - window * (window - 1) - sequence);
  return pairs / static_cast<double>(sequence);
}

using DryPass = absl::FunctionRef<absl::Status(const Batch& batch, const PassContext& context)>;

PassPlan PlanOn(kernels::Ops& ops, const Model& model, int64_t batch, int64_t sequence, bool in_parts, DryPass pass) {
  Arena arena = Arena::Counting();
  DryStore store(model, ops);
  const PassContext context{
      .ops = &ops, .arena = &arena, .store = &store, .random = {}, .parts = in_parts ? &store : nullptr};
  HOLDFAST_CHECK(
      pass({.batch = batch, .sequence = sequence}, context).ok());  // a dry pass can fail by a wrong size only
  return {.arena_bytes = arena.peak_bytes(), .schedule = store.schedule()};
}

PassPlan Plan(const Model& model, int64_t batch, int64_t sequence, bool in_parts, DryPass pass) {
  CountingOps ops;
  PassPlan plan = PlanOn(ops, model, batch, sequence, in_parts, pass);
  plan.flops = ops.flops();
  return plan;
}

}  // namespace

PassPlan PlanTraining(Model& model, int64_t batch, int64_t sequence, bool in_parts) {
  return Plan(model, batch, sequence, in_parts, [&](const Batch& dry, const PassContext& context) {
    return model.ForwardBackward(dry, context, nullptr);
  });
}

PassPlan PlanEvaluation(Model& model, int64_t batch, int64_t sequence, bool in_parts) {
  return Plan(model, batch, sequence, in_parts,
              [&](const Batch& dry, const PassContext& context) { return model.Evaluate(dry, context, nullptr); });
}

void DryPasses(Model& model, int64_t batch, int64_t sequence, kernels::Ops& ops) {
  PlanOn(ops, model, batch, sequence, /*in_parts=*/false,
         [&](const Batch& dry, const PassContext& context) { return model.ForwardBackward(dry, context, nullptr); });
  PlanOn(ops, model, batch, sequence, /*in_parts=*/false,
         [&](const Batch& dry, const PassContext& context) { return model.Evaluate(dry, context, nullptr); });
}

PassPlan PlanLastLogits(LanguageModel& model, int64_t batch, int64_t sequence) {
  return Plan(model, batch, sequence, /*in_parts=*/false, [&](const Batch& dry, const PassContext& context) {
    return model.LastLogits(TokenBatch::Of(dry), context, nullptr);
  });
}

PassPlan PlanContinuing(LanguageModel& model, int64_t rows, bool wants_logits) {
  return Plan(model, rows, 1, /*in_parts=*/false, [&](const Batch& dry, const PassContext& context) {
    return model.Continue({.rows = dry.batch}, context, wants_logits, nullptr);
  });
}

int64_t ExpertParameters(const ModelConfig& c) {
  return c.NumExpertLayers() * c.num_experts * (ExpertMatrixElements(c) + ExpertBiasElements(c));
}

int64_t ActiveParameters(const ModelConfig& config) {
  const int64_t total = TransformerLayout(config).elements(), experts = ExpertParameters(config);
  return experts == 0 ? total : total - experts + experts / config.num_experts * config.experts_per_token;
}

bool MovesTokens(const Config& config) {
  if (config.model.NumExpertLayers() == 0 || config.trains_part()) return false;
  if (config.parallel.experts != ExpertPlacement::kAuto) return config.parallel.experts == ExpertPlacement::kMove;
  const ExpertBytes bytes = ExpertBytesOf(config);
  return bytes.move < bytes.gather;
}

void ResolveExpertPlacement(Config* config) {
  if (config->model.NumExpertLayers() == 0 || config->trains_part()) return;
  const bool moves = MovesTokens(*config);
  config->parallel.experts = moves ? ExpertPlacement::kMove : ExpertPlacement::kGather;
  config->parallel.overlap_microbatches = config->parallel.overlap_microbatches && moves;
}

double FlopsPerTokenOf(const ModelConfig& config, int64_t sequence) {
  const int64_t positions = config.position == PositionKind::kLearned ? config.max_sequence_length : 0;
  const int64_t looked_up = positions + (config.tie_embeddings ? 0 : config.vocab_size);
  const int64_t multiplied = ActiveParameters(config) - looked_up * config.hidden_size;
  double seen = 0;  // keys, in all layers
  for (int64_t layer = 1; layer <= config.num_layers; ++layer) seen += SeenKeys(config, layer, sequence);
  const auto attention = static_cast<double>(config.num_heads * config.head_dim);
  return 6.0 * static_cast<double>(multiplied) + 12.0 * attention * seen;
}

double FlopsPerTokenOf(const ModelConfig& config, int64_t sequence, const ParameterLayout& layout,
                       absl::FunctionRef<bool(const ParameterSpec&)> frozen) {
  int lowest = layout.num_units();  // unit of which something is trained
  for (const ParameterSpec& spec : layout.parameters()) lowest = frozen(spec) ? lowest : std::min(lowest, spec.unit);
  double multiplied = 0;  // values by a token, forward and backward
  for (const ParameterSpec& spec : layout.parameters()) {
    const bool is_table = spec.unit == 0, is_head = spec.name == kTokenTable && config.tie_embeddings;
    if (is_table && !is_head) continue;  // looked up
    const bool passes_back = is_head || spec.unit >= lowest;
    const double passes = 1.0 + (passes_back ? 1 : 0) + (frozen(spec) ? 0 : 1);
    const bool of_expert = absl::EndsWith(layout.units()[static_cast<size_t>(spec.unit)].name, kExpertsUnit);
    const double share =
        of_expert ? static_cast<double>(config.experts_per_token) / static_cast<double>(config.num_experts) : 1.0;
    multiplied += passes * share * static_cast<double>(spec.shape.elements());
  }
  double seen = 0;  // keys by a token, in attention's forward half once, in its backward half twice
  int64_t layer = 0;
  for (int u = 0; u < layout.num_units(); ++u) {
    const std::string& name = layout.units()[static_cast<size_t>(u)].name;
    if (!absl::StartsWith(name, kBlockUnit) || absl::EndsWith(name, kExpertsUnit)) continue;
    seen += (u >= lowest ? 3 : 1) * SeenKeys(config, ++layer, sequence);
  }
  const auto attention = static_cast<double>(config.num_heads * config.head_dim);
  return 2.0 * multiplied + 4.0 * seen * attention;
}

}  // namespace holdfast
