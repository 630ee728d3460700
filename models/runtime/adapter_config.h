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

/// Whether adapters whose model is `base` may be for the one in `directory`, by the names alone: one of the hub
/// ("org/model") says nothing of where a copy lies, but for the last part of it.
bool MayBeModel(const std::string& base, const std::string& directory);

/// What an adapter adds is scale * B A, of this rank.
struct RankAndScale {
  int64_t rank = 0;
  float scale = 1;
};

/// A key of rank_pattern or alpha_pattern, and its value.
struct AdapterPattern {
  std::string text, glob;  // as in the file, and as MatchesGlob has it
  bool whole = false;      // it begins with ^: else it may also begin after any point of a name
  double value = 0;
};

/// What adapters compute.
struct AdapterKind {
  std::string path;  // of the file that says so
  int64_t rank = 0;  // where no pattern says another one, as alpha
  double alpha = 1;
  bool rslora = false;
  std::vector<AdapterPattern> ranks = {}, alphas = {};
  std::vector<std::string> parameters = {};  // that they are for besides modules, by the ends of their names

  /// Of the adapter of a module, or of a parameter, by its whole name. InvalidArgument if patterns for it disagree:
  /// which of them counts depends on an order that JSON does not have.
  absl::StatusOr<RankAndScale> Of(const std::string& name) const;
  bool IsForParameter(const std::string& name) const;
};

/// Of those in `directory`. Unimplemented, naming the key, for adapters of another kind than ours.
absl::StatusOr<AdapterKind> ReadAdapterKind(const std::string& directory);

/// Of a config with lora.
std::string AdapterConfigJson(const Config& config, const std::vector<AdaptedLayer>& adapted);

}  // namespace holdfast
