#include "models/parametrization.h"

#include <cmath>

namespace holdfast {
namespace {

struct Growth {
  double width = 1, depth = 1, head = 1;
};

double Ratio(int64_t size, int64_t base) {
  return base == 0 ? 1 : static_cast<double>(size) / static_cast<double>(base);
}

Growth GrowthOf(const ModelConfig& c) {
  return {.width = Ratio(c.hidden_size, c.base_hidden_size),
          .depth = Ratio(c.num_layers, c.base_num_layers),
          .head = Ratio(c.head_dim, c.base_head_dim)};
}

double MultiplierOf(ParameterRole role, const ModelConfig& config, const Growth& growth) {
  switch (role) {
    case ParameterRole::kBranchOutput:
    case ParameterRole::kBranchBias:
      return 1 / growth.depth;
    case ParameterRole::kHead:
    case ParameterRole::kRouter:
      return 1 / growth.width;
    case ParameterRole::kFinalNorm:
      return config.tie_embeddings ? 1 / growth.width : 1;
    case ParameterRole::kQueryNorm:
      return 1 / std::sqrt(growth.head);
    default:
      return 1;
  }
}

bool InBlock(ParameterRole role) {
  return role != ParameterRole::kEmbedding && role != ParameterRole::kHead && role != ParameterRole::kFinalNorm;
}

}  // namespace

ParameterFactors FactorsOf(ParameterRole role, const ModelConfig& config, OptimizerKind optimizer) {
  if (config.parametrization == Parametrization::kStandard) return {};
  const Growth growth = GrowthOf(config);
  const double m = MultiplierOf(role, config, growth);
  double init = 1, lr = 1, eps = 1 / growth.width;  // of W
  if (IsHidden(role)) {
    init = 1 / std::sqrt(growth.width);
    lr = optimizer == OptimizerKind::kMuon ? init : 1 / growth.width;
  }
  if (role == ParameterRole::kBranchOutput) init *= std::sqrt(growth.depth);  // of init_std / sqrt(2 num_layers)
  if (InBlock(role)) eps /= growth.depth;
  return {.multiplier = m, .init = m * init, .lr = m * lr, .decay = 1 / (m * lr), .eps = eps / m};
}

void Scale(const ParameterFactors& factors, ParameterSpec* spec) {
  spec->init_std = static_cast<float>(spec->init_std * factors.init);
  spec->init_value = static_cast<float>(spec->init_value * factors.init);
  spec->lr_factor = static_cast<float>(spec->lr_factor * factors.lr);
  spec->decay_factor = static_cast<float>(factors.decay);
  spec->eps_factor = static_cast<float>(factors.eps);
  spec->norm_factor = static_cast<float>(factors.multiplier);
}

}  // namespace holdfast
