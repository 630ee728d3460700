#pragma once
// A model with experts from a dense one (Komatsuzaki et al. 2022, arXiv 2212.05055): each expert is a copy of its
// layer's MLP, the router begins as that of a new model. Weights of a token's experts sum to one, so the first logits
// are the dense model's. Streamed: neither model is needed in memory.
//
// A shared expert, where the family has one always (Qwen2-MoE), begins as a copy of the MLP with zeros as its last
// projection, so that it adds nothing at first.

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"

namespace holdfast {

struct UpcycleOptions {
  std::string dense;   // saved model
  std::string output;  // directory, not there yet or empty
  int64_t experts = 8, experts_per_token = 2;
  uint64_t seed = 0;                    // of the routers
  std::optional<FileDType> dtype = {};  // empty = the dense model's
  uint64_t max_file_bytes = 5'000'000'000;
  std::stop_token stop = {};  // asks for an end: Cancelled
};

/// Of a model of `dense`'s family with experts. InvalidArgument, naming what does not fit, as what files of that family
/// cannot say, unless the dense model is in our own form already.
absl::StatusOr<ModelConfig> UpcycledConfig(const ModelConfig& dense, int64_t experts, int64_t experts_per_token);

/// The config of what was made. After an error there is nothing at `output`. AlreadyExists if there is something
/// before.
absl::StatusOr<ModelConfig> UpcycleModel(const UpcycleOptions& options, const ByteProgress& progress);

}  // namespace holdfast
