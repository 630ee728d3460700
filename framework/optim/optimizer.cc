#include "framework/optim/optimizer.h"

#include <utility>

#include "framework/optim/adamw.h"
#include "framework/optim/balancing.h"
#include "framework/optim/ema.h"
#include "framework/optim/lion.h"
#include "framework/optim/muon.h"

namespace holdfast {

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config) {
  std::unique_ptr<Optimizer> optimizer;
  switch (config.name) {
    case OptimizerKind::kAdamW:
      optimizer = std::make_unique<AdamW>(config);
      break;
    case OptimizerKind::kLion:
      optimizer = std::make_unique<Lion>(config);
      break;
    case OptimizerKind::kMuon:
      optimizer = std::make_unique<Muon>(config);
      break;
  }
  optimizer = std::make_unique<WithBalancing>(std::move(optimizer));
  if (config.ema_decay > 0) optimizer = std::make_unique<WithEma>(std::move(optimizer), config.ema_decay);
  return optimizer;
}

StateLayout LayoutOf(const Optimizer& optimizer, const ParameterLayout& parameters) {
  std::vector<std::vector<Plane>> planes;
  for (const ParameterSpec& parameter : parameters.parameters()) planes.push_back(optimizer.PlanesOf(parameter));
  return {parameters, std::move(planes)};
}

}  // namespace holdfast
