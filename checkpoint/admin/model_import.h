#pragma once
// A saved model becomes the checkpoint of step 0, from which a run of the given config starts. Streamed: one chunk
// after the other, with the state of an optimizer that has made no step.

#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/storage/storage.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// A saved model directory, opened for a config whose model is the same; routers may have biases besides, from 0.
class ModelImport {
 public:
  /// Checks names and shapes of the tensors in `directory`; reads no value.
  static absl::StatusOr<ModelImport> Open(const Config& config, const std::string& directory);

  const ParameterLayout& layout() const { return layout_; }

  /// `owner`: who claims `storage` (FenceOwner). AlreadyExists if there are checkpoints, FailedPrecondition if somebody
  /// else may use it; Cancelled, and no checkpoint, if `stop` asks for an end.
  absl::StatusOr<Manifest> WriteTo(Storage& storage, const std::string& owner, const ByteProgress& progress,
                                   const std::stop_token& stop) const;

 private:
  ModelImport(Config config, ParameterLayout layout, ReadWeightsFn weights)
      : config_(std::move(config)), layout_(std::move(layout)), weights_(std::move(weights)) {}

  Config config_;
  ParameterLayout layout_;
  ReadWeightsFn weights_;
};

}  // namespace holdfast
