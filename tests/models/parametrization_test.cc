// Proves the factors of each kind of parameter against the papers' tables, that a base model is a standard one, and, by
// training both, that a model with factors at its parameters is the model with multipliers that the papers describe:
// the multipliers, the initial values, the rates and AdamW of the latter are written out here.

#include "models/parametrization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "framework/parallel/chunk_squares.h"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

using Role = ParameterRole;
constexpr Role kRoles[] = {Role::kEmbedding, Role::kHidden,    Role::kBranchOutput, Role::kRouter,    Role::kHead,
                           Role::kVector,    Role::kQueryNorm, Role::kBranchBias,   Role::kFinalNorm, Role::kAdapter};
constexpr OptimizerKind kOptimizers[] = {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kMuon};

/// Four times as wide and twice as deep as its base, with heads four times as large.
ModelConfig Grown(Parametrization parametrization, bool tied) {
  ModelConfig c = TinyQwen2Moe();
  c.num_layers = 6;
  c.hidden_size = 64;
  c.head_dim = 32;
  c.qk_norm = true;
  c.tie_embeddings = tied;
  c.parametrization = parametrization;
  c.base_hidden_size = 16;
  c.base_num_layers = parametrization == Parametrization::kCompleteP ? 3 : 0;
  c.base_head_dim = 8;
  return c;
}

TEST(Parametrization, WhatIsAsLargeAsItsBaseIsStandard) {
  for (const Parametrization p : {Parametrization::kStandard, Parametrization::kMup, Parametrization::kCompleteP}) {
    ModelConfig c = Grown(p, true);
    if (p != Parametrization::kStandard) {
      c.base_hidden_size = c.hidden_size;
      c.base_head_dim = 0;
    }
    if (p == Parametrization::kCompleteP) c.base_num_layers = c.num_layers;
    for (const Role role : kRoles) {
      for (const OptimizerKind kind : kOptimizers) EXPECT_EQ(FactorsOf(role, c, kind), ParameterFactors());
    }
  }
}

// n = 4, l = 2. Of each: multiplier, initial values, rate, epsilon, all of the parameter with its multiplier in it.
TEST(Parametrization, FactorsAreThoseOfTheTables) {
  struct Row {
    Role role;
    double m, init, lr, eps;
  };
  const double half = std::sqrt(2.0);  // of init_std / sqrt(2 num_layers) there to that of num_layers / 2
  const auto check = [](const ModelConfig& config, OptimizerKind kind, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const ParameterFactors f = FactorsOf(row.role, config, kind);
      EXPECT_DOUBLE_EQ(f.multiplier, row.m) << static_cast<int>(row.role);
      EXPECT_DOUBLE_EQ(f.init, row.init) << static_cast<int>(row.role);
      EXPECT_DOUBLE_EQ(f.lr, row.lr) << static_cast<int>(row.role);
      EXPECT_DOUBLE_EQ(f.eps, row.eps) << static_cast<int>(row.role);
      EXPECT_DOUBLE_EQ(f.lr * f.decay, 1) << static_cast<int>(row.role);
    }
  };
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion}) {
    check(Grown(Parametrization::kMup, false), kind,
          {{Role::kEmbedding, 1, 1, 1, 0.25},
           {Role::kHidden, 1, 0.5, 0.25, 0.25},
           {Role::kBranchOutput, 1, 0.5, 0.25, 0.25},
           {Role::kRouter, 0.25, 0.25, 0.25, 1},
           {Role::kHead, 0.25, 0.25, 0.25, 1},
           {Role::kVector, 1, 1, 1, 0.25},
           {Role::kQueryNorm, 0.5, 0.5, 0.5, 0.5},
           {Role::kBranchBias, 1, 1, 1, 0.25},
           {Role::kFinalNorm, 1, 1, 1, 0.25}});
    check(Grown(Parametrization::kCompleteP, true), kind,
          {{Role::kEmbedding, 1, 1, 1, 0.25},
           {Role::kHidden, 1, 0.5, 0.25, 0.125},
           {Role::kBranchOutput, 0.5, 0.25 * half, 0.125, 0.25},
           {Role::kRouter, 0.25, 0.25, 0.25, 0.5},
           {Role::kVector, 1, 1, 1, 0.125},
           {Role::kQueryNorm, 0.5, 0.5, 0.5, 0.25},
           {Role::kBranchBias, 0.5, 0.5, 0.5, 0.25},
           {Role::kFinalNorm, 0.25, 0.25, 0.25, 1}});
  }
  check(Grown(Parametrization::kCompleteP, true), OptimizerKind::kMuon,
        {{Role::kHidden, 1, 0.5, 0.5, 0.125},
         {Role::kBranchOutput, 0.5, 0.25 * half, 0.25, 0.25},
         {Role::kRouter, 0.25, 0.25, 0.25, 0.5}});
}

// --- the model with multipliers -------------------------------------------------------------------------------------

/// What the papers say of a parameter of Grown(kCompleteP): W, which the model multiplies by m.
struct Paper {
  double m = 1, lr = 1, decay = 1, eps = 1;
};

Paper PaperOf(const std::string& name, bool tied) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  constexpr double kWider = 4, kDeeper = 2;
  if (name.starts_with("embedding")) return {.eps = 1 / kWider};
  if (name == "head.weight") return {.m = 1 / kWider, .eps = 1 / kWider};
  if (name.starts_with("final_norm")) return {.m = tied ? 1 / kWider : 1, .eps = 1 / kWider};
  constexpr double kEps = 1 / (kWider * kDeeper);
  if (has("router") || has("shared.gate.")) return {.m = 1 / kWider, .eps = kEps};
  if (has("q_norm")) return {.m = 0.5, .eps = kEps};
  if (has(".bias") || has("norm")) return {.m = has(".out.") || has(".down.") ? 1 / kDeeper : 1, .eps = kEps};
  return {.m = has(".out.") || has(".down.") ? 1 / kDeeper : 1, .lr = 1 / kWider, .decay = kWider, .eps = kEps};
}

const OptimizerConfig kOptimizer{.lr = 3e-3, .eps = 1e-3, .weight_decay = 0.5, .grad_clip_norm = 0.05};
constexpr int kSteps = 4;

/// Weights after some steps; update(weights, gradient, step) is one.
std::vector<float> Trained(const ModelConfig& config, std::vector<float> weights,
                           const std::function<void(std::vector<float>&, const std::vector<float>&, int)>& update) {
  for (int step = 1; step <= kSteps; ++step) {
    TestModel model(config, {.compute_dtype = DType::kF32}, 1, weights);
    const Tokens tokens = RandomTokens(config.vocab_size, 2, 8, static_cast<uint64_t>(step));
    model.Train(tokens, 1.0f / 16);
    update(weights, model.store().gradients(), step);
  }
  return weights;
}

/// By the optimizer and the norm of the gradient as a trainer has them.
std::vector<float> TrainedHere(const ModelConfig& config, const std::vector<float>& weights) {
  const auto device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  const auto model = MakeTransformer(config, {}, *device).value();
  const auto optimizer = MakeOptimizer(kOptimizer);
  std::vector<float> first(weights.size()), second(weights.size());
  return Trained(config, weights, [&](std::vector<float>& w, const std::vector<float>& gradient, int step) {
    const ParameterLayout& layout = model->layout();
    ChunkSquares squares;
    double square = 0;
    const ChunkRange all{.first = 0, .end = static_cast<int64_t>(layout.chunks().size()), .x = gradient.data()};
    const auto by_chunk = squares.Of({all}, layout, *device, *stream);
    for (const auto& [chunk, sum] : *by_chunk) square += sum;
    const auto norm = static_cast<float>(std::sqrt(square));
    const UpdateScalars scalars = ComputeUpdateScalars(kOptimizer, kOptimizer.lr, step, norm);
    for (const ParameterSpec& p : layout.parameters()) {
      PlaneRange range{.parameter = &p, .n = p.shape.elements(), .planes = {}};
      for (std::vector<float>* plane : {&w, &first, &second}) range.planes.push_back(plane->data() + p.offset);
      range.gradient = gradient.data() + p.offset;
      optimizer->Apply(stream->ops(), range, scalars, nullptr);
    }
  });
}

/// By AdamW with what the paper says of each W, in double precision; `weights` are m W.
std::vector<float> TrainedAsInThePaper(const ModelConfig& config, const std::vector<float>& weights) {
  const ParameterLayout layout = TransformerLayout(config);
  std::vector<Paper> papers;
  for (const ParameterSpec& p : layout.parameters()) {
    papers.insert(papers.end(), static_cast<size_t>(p.shape.elements()), PaperOf(p.name, config.tie_embeddings));
    for (auto i = papers.size() - static_cast<size_t>(p.shape.elements()); i < papers.size(); ++i) {
      if (!p.is_matrix()) papers[i].decay = 0;
    }
  }
  std::vector<double> w, first(weights.size()), second(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) w.push_back(static_cast<double>(weights[i]) / papers[i].m);
  return Trained(config, weights, [&](std::vector<float>& out, const std::vector<float>& gradient, int step) {
    double square = 0;
    for (size_t i = 0; i < w.size(); ++i) square += std::pow(papers[i].m * static_cast<double>(gradient[i]), 2);
    const double clip = std::min(1.0, kOptimizer.grad_clip_norm / std::sqrt(square));
    EXPECT_LT(clip, 1);
    for (size_t i = 0; i < w.size(); ++i) {
      const Paper& p = papers[i];
      const double g = clip * p.m * static_cast<double>(gradient[i]), lr = kOptimizer.lr * p.lr;
      first[i] = kOptimizer.beta1 * first[i] + (1 - kOptimizer.beta1) * g;
      second[i] = kOptimizer.beta2 * second[i] + (1 - kOptimizer.beta2) * g * g;
      const double mean = first[i] / (1 - std::pow(kOptimizer.beta1, step));
      const double size = std::sqrt(second[i] / (1 - std::pow(kOptimizer.beta2, step)));
      w[i] -= lr * (mean / (size + kOptimizer.eps * p.eps) + kOptimizer.weight_decay * p.decay * w[i]);
      out[i] = static_cast<float>(p.m * w[i]);
    }
  });
}

TEST(Parametrization, IsTheModelWithMultipliers) {
  for (const bool tied : {false, true}) {
    for (const bool biased : {false, true}) {
      ModelConfig config = Grown(Parametrization::kCompleteP, tied);
      if (biased) {
        config.num_experts = config.shared_expert_intermediate_size = 0;
        config.shared_expert_gate = false;
        config.bias = true;
        config.norm = NormType::kLayerNorm;
      }
      const std::vector<float> before = RandomWeights(TransformerLayout(config), 3);
      const std::vector<float> here = TrainedHere(config, before), there = TrainedAsInThePaper(config, before);
      double difference = 0, change = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        difference += std::pow(here[i] - there[i], 2);
        change += std::pow(there[i] - before[i], 2);
      }
      EXPECT_LT(std::sqrt(difference / change), 1e-3) << "tied " << tied << ", biased " << biased;
    }
  }
}

TEST(Parametrization, InitialValuesAreScaled) {
  const auto device = MakeCpuDevice(1);
  const ModelConfig config = Grown(Parametrization::kCompleteP, true);
  const auto model = MakeTransformer(config, {}, *device).value();
  const auto of = [&](const char* name) { return model->layout().parameters()[model->layout().Find(name)]; };
  EXPECT_FLOAT_EQ(of("embedding.tokens.weight").init_std, 0.02f);
  EXPECT_FLOAT_EQ(of("blocks.0.attention.qkv.weight").init_std, 0.01f);
  EXPECT_FLOAT_EQ(of("blocks.0.experts.1.down.weight").init_std, 0.01f / std::sqrt(2.0f * 3) / 2);
  EXPECT_FLOAT_EQ(InitialConstant(of("blocks.0.norm1.weight")), 1);
  EXPECT_FLOAT_EQ(InitialConstant(of("blocks.0.attention.q_norm.weight")), 0.5f);
  EXPECT_FLOAT_EQ(InitialConstant(of("blocks.0.attention.k_norm.weight")), 1);
  EXPECT_FLOAT_EQ(InitialConstant(of("final_norm.weight")), 0.25f);
  EXPECT_FLOAT_EQ(InitialConstant(of("blocks.0.attention.qkv.bias")), 0);
}

TEST(Parametrization, AHeadOfItsOwnMayBeginWithZeros) {
  const auto device = MakeCpuDevice(1);
  ModelConfig config = Grown(Parametrization::kCompleteP, false);
  const auto head = [&] {
    const auto model = MakeTransformer(config, {}, *device).value();
    return model->layout().parameters()[model->layout().Find("head.weight")];
  };
  const ParameterSpec random = head();
  config.zero_init_head = true;
  const ParameterSpec zeros = head();
  EXPECT_EQ(random.init, InitKind::kNormal);
  EXPECT_EQ(zeros.init, InitKind::kZeros);
  EXPECT_EQ(zeros.lr_factor, random.lr_factor);
  EXPECT_EQ(zeros.norm_factor, random.norm_factor);
}

}  // namespace
}  // namespace holdfast
