#include "models/transformer.h"

#include <optional>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "models/block.h"
#include "models/embedding.h"
#include "models/head.h"
#include "models/rotary.h"
#include "models/unit_guard.h"

namespace holdfast {
namespace {

/// The modules in canonical order; constructing them describes every parameter to the builder.
struct Modules {
  Modules(ParameterBuilder& builder, const ModelConfig& config, const TransformerOptions& options, const float* rope)
      : embedding(Unit(builder, "embedding"), config),
        blocks(MakeBlocks(builder, config, options, rope)),
        head(Unit(builder, "head"), config, options.head_rows) {}

  static ParameterBuilder& Unit(ParameterBuilder& builder, const std::string& name) {
    builder.BeginUnit(name);
    return builder;
  }

  static std::vector<Block> MakeBlocks(ParameterBuilder& builder, const ModelConfig& config,
                                       const TransformerOptions& options, const float* rope) {
    std::vector<Block> blocks;
    blocks.reserve(static_cast<size_t>(config.num_layers));
    for (int64_t l = 0; l < config.num_layers; ++l) {
      const std::string name = absl::StrCat("blocks.", l);
      blocks.emplace_back(Unit(builder, name), name, config, l + 1, Advance(rope, RopeTableOffset(config, l + 1)));
      const std::string experts = name + ".experts";
      if (blocks.back().has_experts()) {
        blocks.back().AddExperts(Unit(builder, experts), experts, config, options.cut_at_experts);
      }
    }
    return blocks;
  }

  Embedding embedding;
  std::vector<Block> blocks;
  Head head;
};

/// The weights that a block reads: of its own unit, and of its experts'.
struct BlockWeights {
  AcquiredUnit own;
  std::optional<AcquiredUnit> experts;
  int experts_unit = -1;

  BlockTensors tensors() const {
    return {own.weights(), experts.has_value() ? experts->weights() : UnitTensors(), experts_unit};
  }
};

class Transformer final : public LanguageModel {
 public:
  Transformer(const ModelConfig& config, const TransformerOptions& options, Buffer rope, ParameterBuilder builder)
      : config_(config),
        options_(options),
        rope_(std::move(rope)),
        modules_(builder, config, options, rope_.as<float>()),
        layout_(BuildLayout(std::move(builder), config, options)),
        statistics_(RouterStatistics(config)) {}

  const ParameterLayout& layout() const override { return layout_; }
  DType compute_dtype() const override { return options_.compute_dtype; }
  const StatisticsLayout& statistics() const override { return statistics_; }
  std::vector<Figure> Figures(const Statistics& step) const override { return RouterFigures(config_, step); }

  absl::Status ForwardBackward(const Batch& any, const PassContext& context, float* losses) override;
  absl::Status Evaluate(const Batch& any, const PassContext& context, float* losses) override;
  absl::Status EvaluateLogits(const TokenBatch& batch, const PassContext& context, float* losses,
                              SeeLogits see) override;
  absl::Status LastLogits(const TokenBatch& batch, const PassContext& context, float* logits) override;
  absl::Status Continue(const ContinuedBatch& batch, const PassContext& context, bool wants_logits,
                        float* logits) override;
  absl::Status Serve(const Batch& shape, const PassContext& context, bool training) override;

 private:
  /// What the forward half of a training pass leaves for the backward half.
  struct Saved {
    std::vector<BlockActivations> blocks;
    Tensor embedded;   // (R, C)
    Tensor branch;     // (R, C) the pending branch; the gradient of the stream in the backward half
    Tensor final_sum;  // (R, C) input of the final norm
    ResidualStream stream;
  };

  static ParameterLayout BuildLayout(ParameterBuilder builder, const ModelConfig& config,
                                     const TransformerOptions& options) {
    builder.ChangeEach([&](ParameterSpec& spec, ParameterRole role) {
      Scale(FactorsOf(role, config, options.optimizer), &spec);
      if (options.frozen != nullptr) spec.frozen = options.frozen(std::as_const(spec));
      if (options.set_rates != nullptr) options.set_rates(spec);
    });
    return std::move(builder).Build();
  }
  /// The lowest unit of which something is trained: below it no gradient is wanted.
  int FirstTrainedUnit() const {
    for (const ParameterSpec& spec : layout_.parameters()) {
      if (!spec.frozen) return spec.unit;
    }
    return layout_.num_units();
  }

  absl::Status CheckSize(const TokenBatch& batch) const;
  Pass MakePass(const TokenBatch& batch, const PassContext& context, bool training) const;
  absl::Status Embed(const Pass& pass, UnitStore& store, const int32_t* tokens, const Tensor& out) const;

  absl::Status ForwardBlocks(const Pass& pass, UnitStore& store, Saved* saved) const;
  absl::Status HeadForwardBackward(const Pass& pass, const PassContext& context, const TokenBatch& batch,
                                   const Saved& saved, float* losses, UnitTensors* embedding_gradients) const;
  absl::Status BackwardBlocks(const Pass& pass, UnitStore& store, const Saved& saved) const;
  absl::Status BackwardEmbedding(const Pass& pass, UnitStore& store, const TokenBatch& batch, const Saved& saved,
                                 UnitTensors embedding_gradients) const;

  /// Runs the forward pass without keeping anything and returns use(weights of the head's unit, projection, stream).
  template <typename Use>
  absl::Status ForwardOnly(const Pass& pass, UnitStore& store, const int32_t* tokens, Use&& use) const;

  int head_unit() const { return layout_.num_units() - 1; }
  static constexpr int kEmbeddingUnit = 0;
  /// The block's own unit; its experts' is the next one.
  int BlockUnit(size_t block) const {
    int unit = kEmbeddingUnit + 1;
    for (size_t l = 0; l < block; ++l) unit += modules_.blocks[l].has_experts() ? 2 : 1;
    return unit;
  }
  int ExpertsUnit(size_t block) const { return BlockUnit(block) + 1; }
  absl::StatusOr<BlockWeights> AcquireBlock(const Pass& pass, UnitStore& store, size_t block) const;

  ModelConfig config_;
  TransformerOptions options_;
  Buffer rope_;
  Modules modules_;
  ParameterLayout layout_;
  StatisticsLayout statistics_;
};

/// The weights the head reads: its own unit's and the projection, which is the token table if they are tied.
struct HeadWeights {
  AcquiredUnit unit;
  std::optional<AcquiredUnit> tied;
  Tensor projection;

  static absl::StatusOr<HeadWeights> Acquire(UnitStore& store, int head_unit, int embedding_unit,
                                             const Modules& modules) {
    ASSIGN_OR_RETURN(AcquiredUnit unit, AcquiredUnit::Acquire(store, head_unit));
    if (modules.head.owns_projection()) {
      const Tensor projection = modules.head.Projection(unit.weights());
      return HeadWeights{std::move(unit), std::nullopt, projection};
    }
    ASSIGN_OR_RETURN(AcquiredUnit tied, AcquiredUnit::Acquire(store, embedding_unit));
    const Tensor projection = modules.embedding.TokenTable(tied.weights());
    return HeadWeights{std::move(unit), std::move(tied), projection};
  }
};

absl::StatusOr<BlockWeights> Transformer::AcquireBlock(const Pass& pass, UnitStore& store, size_t block) const {
  ASSIGN_OR_RETURN(AcquiredUnit own, AcquiredUnit::Acquire(store, BlockUnit(block)));
  if (!modules_.blocks[block].has_experts()) return BlockWeights{std::move(own), std::nullopt};
  const int unit = ExpertsUnit(block);
  if (pass.parts != nullptr) return BlockWeights{std::move(own), std::nullopt, unit};
  ASSIGN_OR_RETURN(AcquiredUnit experts, AcquiredUnit::Acquire(store, unit));
  return BlockWeights{std::move(own), std::move(experts), unit};
}

absl::Status Transformer::CheckSize(const TokenBatch& batch) const {
  if (batch.batch < 1 || batch.sequence < 1 || batch.sequence > config_.max_sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.batch, " sequences of ", batch.sequence,
                                                   " tokens; the model takes 1 to ", config_.max_sequence_length,
                                                   " tokens (model.max_sequence_length)"));
  }
  return absl::OkStatus();
}

Pass Transformer::MakePass(const TokenBatch& batch, const PassContext& context, bool training) const {
  return {.ops = context.ops,
          .arena = context.arena,
          .dtype = options_.compute_dtype,
          .batch = batch.batch,
          .sequence = batch.sequence,
          .documents = batch.documents,
          .random = context.random,
          .dropout_rate = training ? static_cast<float>(config_.dropout) : 0,
          .loss_scale = context.loss_scale,
          .counted = context.counted,
          .layout = &statistics_,
          .statistics = context.statistics,
          .parts = context.parts,
          .training = training};
}

absl::Status Transformer::Embed(const Pass& pass, UnitStore& store, const int32_t* tokens, const Tensor& out) const {
  ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(store, kEmbeddingUnit));
  modules_.embedding.Forward(pass, unit.weights(), tokens, out.matrix());
  return absl::OkStatus();
}

absl::Status Transformer::ForwardBackward(const Batch& any, const PassContext& context, float* losses) {
  const TokenBatch batch = TokenBatch::Of(any);
  RETURN_IF_ERROR(CheckSize(batch));
  const ArenaScope scope(*context.arena);
  Pass pass = MakePass(batch, context, /*training=*/true);
  if (const int64_t layers = config_.NumExpertLayers(); layers > 0) {
    pass.expert_counts = pass.Floats({layers, config_.num_experts});
  }
  Saved saved;
  saved.branch = pass.Activation(config_.hidden_size);
  saved.embedded = pass.Activation(config_.hidden_size);
  UnitTensors embedding_gradients;
  RETURN_IF_ERROR(Embed(pass, *context.store, batch.inputs, saved.embedded));
  RETURN_IF_ERROR(ForwardBlocks(pass, *context.store, &saved));
  RETURN_IF_ERROR(HeadForwardBackward(pass, context, batch, saved, losses, &embedding_gradients));
  RETURN_IF_ERROR(BackwardBlocks(pass, *context.store, saved));
  return BackwardEmbedding(pass, *context.store, batch, saved, embedding_gradients);
}

absl::Status Transformer::ForwardBlocks(const Pass& pass, UnitStore& store, Saved* saved) const {
  saved->blocks.resize(modules_.blocks.size());
  saved->stream = {.residual = saved->embedded.matrix(), .branch = {}, .dropout = {}};
  Tensor input = saved->embedded;
  for (size_t l = 0; l < modules_.blocks.size(); ++l) {
    ASSIGN_OR_RETURN(const BlockWeights unit, AcquireBlock(pass, store, l));
    BlockActivations& activations = saved->blocks[l];
    activations.input = input;
    // Of the stream recomputation keeps the input alone. `middle` then only has to live until the branch has been added
    // to it, in place, which makes it the next input.
    const Tensor next_input = pass.Activation(config_.hidden_size);
    modules_.blocks[l].AllocateKept(pass, &activations);
    std::optional<ArenaScope> inner;
    if (options_.recompute_blocks) inner.emplace(*pass.arena);
    activations.middle = options_.recompute_blocks ? next_input : pass.Activation(config_.hidden_size);
    modules_.blocks[l].AllocateInner(pass, &activations);
    ASSIGN_OR_RETURN(saved->stream,
                     modules_.blocks[l].Forward(pass, unit.tensors(), saved->stream, activations, saved->branch));
    input = next_input;
  }
  saved->final_sum = input;
  return absl::OkStatus();
}

absl::Status Transformer::HeadForwardBackward(const Pass& pass, const PassContext& context, const TokenBatch& batch,
                                              const Saved& saved, float* losses,
                                              UnitTensors* embedding_gradients) const {
  UnitStore& store = *context.store;
  const Head& head = modules_.head;
  ASSIGN_OR_RETURN(const HeadWeights weights, HeadWeights::Acquire(store, head_unit(), kEmbeddingUnit, modules_));
  ASSIGN_OR_RETURN(const UnitTensors gradients, store.BeginGradients(head_unit()));
  if (!head.owns_projection()) {
    ASSIGN_OR_RETURN(*embedding_gradients, store.BeginGradients(kEmbeddingUnit));
  }
  const Tensor& d_projection =
      head.owns_projection() ? head.Projection(gradients) : modules_.embedding.TokenTable(*embedding_gradients);
  head.LossesAndGradients(pass, weights.unit.weights(), gradients, weights.projection, d_projection, saved.stream,
                          saved.final_sum, batch.targets, context.loss_scale, losses, saved.branch);
  return store.EndGradients(head_unit());
}

absl::Status Transformer::BackwardBlocks(const Pass& pass, UnitStore& store, const Saved& saved) const {
  const int first_trained = FirstTrainedUnit();
  for (size_t l = modules_.blocks.size(); l-- > 0;) {
    if ((modules_.blocks[l].has_experts() ? ExpertsUnit(l) : BlockUnit(l)) < first_trained) {
      if (modules_.blocks[l].has_experts()) modules_.blocks[l].experts().Report(pass, saved.blocks[l].experts);
      continue;
    }
    const ArenaScope inner(*pass.arena);
    BlockActivations activations = saved.blocks[l];
    ASSIGN_OR_RETURN(const BlockWeights unit, AcquireBlock(pass, store, l));
    if (options_.recompute_blocks) {
      activations.middle = pass.Activation(config_.hidden_size);
      modules_.blocks[l].AllocateInner(pass, &activations);
      const ArenaScope scratch(*pass.arena);
      modules_.blocks[l].Recompute(pass, unit.tensors(), activations, pass.Activation(config_.hidden_size));
    }
    const bool experts = modules_.blocks[l].has_experts() && pass.parts == nullptr;
    BlockTensors gradients;
    ASSIGN_OR_RETURN(gradients.own, store.BeginGradients(BlockUnit(l)));
    if (experts) {
      ASSIGN_OR_RETURN(gradients.experts, store.BeginGradients(ExpertsUnit(l)));
    }
    RETURN_IF_ERROR(modules_.blocks[l].Backward(pass, unit.tensors(), gradients, activations, saved.branch));
    if (experts) RETURN_IF_ERROR(store.EndGradients(ExpertsUnit(l)));
    RETURN_IF_ERROR(store.EndGradients(BlockUnit(l)));
  }
  return absl::OkStatus();
}

absl::Status Transformer::BackwardEmbedding(const Pass& pass, UnitStore& store, const TokenBatch& batch,
                                            const Saved& saved, UnitTensors embedding_gradients) const {
  if (FirstTrainedUnit() > kEmbeddingUnit) return absl::OkStatus();
  if (modules_.head.owns_projection()) {  // otherwise the head has opened them and written its part of the table's
    ASSIGN_OR_RETURN(embedding_gradients, store.BeginGradients(kEmbeddingUnit));
    const Tensor& table = modules_.embedding.TokenTable(embedding_gradients);
    if (Wanted(table)) pass.ops->Zero(table.data, table.bytes());
  }
  modules_.embedding.Backward(pass, embedding_gradients, batch.inputs, saved.branch.matrix());
  return store.EndGradients(kEmbeddingUnit);
}

template <typename Use>
absl::Status Transformer::ForwardOnly(const Pass& pass, UnitStore& store, const int32_t* tokens, Use&& use) const {
  const ArenaScope scope(*pass.arena);
  const Tensor residual = pass.Activation(config_.hidden_size);
  const Tensor branch = pass.Activation(config_.hidden_size);
  RETURN_IF_ERROR(Embed(pass, store, tokens, residual));
  ResidualStream stream{.residual = residual.matrix(), .branch = {}, .dropout = {}};
  for (size_t l = 0; l < modules_.blocks.size(); ++l) {
    const ArenaScope inner(*pass.arena);
    ASSIGN_OR_RETURN(const BlockWeights unit, AcquireBlock(pass, store, l));
    BlockActivations activations;
    activations.input = activations.middle = residual;
    modules_.blocks[l].AllocateKept(pass, &activations);
    modules_.blocks[l].AllocateInner(pass, &activations);
    ASSIGN_OR_RETURN(stream, modules_.blocks[l].Forward(pass, unit.tensors(), stream, activations, branch));
  }
  ASSIGN_OR_RETURN(const HeadWeights weights, HeadWeights::Acquire(store, head_unit(), kEmbeddingUnit, modules_));
  return use(weights.unit.weights(), weights.projection, stream);
}

absl::Status Transformer::Evaluate(const Batch& any, const PassContext& context, float* losses) {
  return EvaluateLogits(TokenBatch::Of(any), context, losses, [](kernels::ConstMatrix) { return absl::OkStatus(); });
}

absl::Status Transformer::EvaluateLogits(const TokenBatch& batch, const PassContext& context, float* losses,
                                         SeeLogits see) {
  RETURN_IF_ERROR(CheckSize(batch));
  const Pass pass = MakePass(batch, context, /*training=*/false);
  return ForwardOnly(pass, *context.store, batch.inputs,
                     [&](UnitTensors weights, const Tensor& projection, const ResidualStream& stream) {
                       return modules_.head.Losses(pass, weights, projection, stream, batch.targets, losses, see);
                     });
}

absl::Status Transformer::LastLogits(const TokenBatch& batch, const PassContext& context, float* logits) {
  RETURN_IF_ERROR(CheckSize(batch));
  const Pass pass = MakePass(batch, context, /*training=*/false);
  return ForwardOnly(pass, *context.store, batch.inputs,
                     [&](UnitTensors weights, const Tensor& projection, const ResidualStream& stream) {
                       modules_.head.LastLogits(pass, weights, projection, stream, logits);
                       return absl::OkStatus();
                     });
}

absl::Status Transformer::Continue(const ContinuedBatch& batch, const PassContext& context, bool wants_logits,
                                   float* logits) {
  Pass pass = MakePass({.batch = batch.rows, .sequence = 1, .documents = {.begin = batch.begins}}, context,
                       /*training=*/false);
  pass.continued = &batch;
  return ForwardOnly(pass, *context.store, batch.tokens,
                     [&](UnitTensors weights, const Tensor& projection, const ResidualStream& stream) {
                       if (wants_logits) modules_.head.LastLogits(pass, weights, projection, stream, logits);
                       return absl::OkStatus();
                     });
}

absl::Status Transformer::Serve(const Batch& shape, const PassContext& context, bool training) {
  const Pass pass = MakePass({.batch = shape.batch, .sequence = shape.sequence}, context, training);
  std::vector<ExpertTraffic> traffic(modules_.blocks.size());
  for (size_t l = 0; l < modules_.blocks.size(); ++l) {
    if (!modules_.blocks[l].has_experts()) continue;
    RETURN_IF_ERROR(modules_.blocks[l].experts().ServeForward(pass, ExpertsUnit(l), &traffic[l]));
  }
  if (!training) return absl::OkStatus();
  for (size_t l = modules_.blocks.size(); l-- > 0;) {
    if (!modules_.blocks[l].has_experts()) continue;
    RETURN_IF_ERROR(modules_.blocks[l].experts().ServeBackward(pass, ExpertsUnit(l), traffic[l]));
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const ModelConfig& c) {
  const int64_t smallest = std::min({c.vocab_size, c.max_sequence_length, c.num_layers, c.hidden_size, c.num_heads,
                                     c.num_kv_heads, c.head_dim, c.intermediate_size});
  if (smallest < 1 || (c.num_experts > 0 && c.expert_intermediate_size < 1)) {
    return absl::InvalidArgumentError("model: every size must be positive (is the config resolved?)");
  }
  if (c.num_heads % c.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.num_heads ", c.num_heads, " is not a multiple of model.num_kv_heads ", c.num_kv_heads));
  }
  if (c.head_dim % 8 != 0 || c.head_dim > 256) {
    return absl::InvalidArgumentError(absl::StrCat("model.head_dim ", c.head_dim, " is not a multiple of 8 up to 256"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> MakeRopeTable(const ModelConfig& config, Device& device) {
  if (config.position != PositionKind::kRope) return Buffer();
  const std::vector<float> table = RopeTable(config);
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device, table.size() * sizeof(float), "rotary tables"));
  device.CopyFromCpu(buffer.data(), table.data(), buffer.bytes());
  return buffer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> MakeTransformer(const ModelConfig& config,
                                                               const TransformerOptions& options, Device& device) {
  RETURN_IF_ERROR(CheckConfig(config));
  ASSIGN_OR_RETURN(Buffer rope, MakeRopeTable(config, device));
  return std::make_unique<Transformer>(config, options, std::move(rope), ParameterBuilder(options.lora));
}

ParameterLayout TransformerLayout(const ModelConfig& config, const LoraOptions& lora) {
  ParameterBuilder builder(lora);
  [[maybe_unused]] const Modules modules(builder, config, {}, nullptr);  // registers its parameters
  return std::move(builder).Build();
}

}  // namespace holdfast
