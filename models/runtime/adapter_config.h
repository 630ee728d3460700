#pragma once
// adapter_config.json, as PEFT writes and reads it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "models/runtime/adapted_layers.h"

namespace holdfast {

/// Whether `directory` holds adapters. A config.json beside them alone is of the model that they are for; with weights
/// of a model it cannot be told which of the two is meant: InvalidArgument.
absl::StatusOr<bool> HoldsAdapter(const std::string& directory);

/// The model that the adapters in `directory` are for, as they say.
absl::StatusOr<std::string> BaseModelOf(const std::string& directory);

/// What adapters compute.
struct AdapterKind {
  int64_t rank = 0;
  double alpha = 1;
  bool rslora = false;
  float scale = 1;                           // alpha / rank, or alpha / sqrt(rank)
  std::vector<std::string> parameters = {};  // that they are for besides modules, by the ends of their names
};

/// Of those in `directory`. Unimplemented, naming the key, for adapters of another kind than ours.
absl::StatusOr<AdapterKind> ReadAdapterKind(const std::string& directory);

/// Of a config with lora.
std::string AdapterConfigJson(const Config& config, const std::vector<AdaptedLayer>& adapted);

}  // namespace holdfast
