#pragma once
// holdfast eval: the loss of a saved model on token files, and how many questions it answers rightly.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/places/places.h"
#include "models/runtime/loaded_model.h"
#include "tools/cli/command.h"

namespace holdfast {

struct EvalCommand {
  std::string model;
  std::vector<std::string> data;
  int64_t sequence = 0;  // 0: that of packed rows; else as in the run; of a saved model alone its own, at most 1024
  int64_t batch = 4, microbatches = 0, threads = 0;
  ComputeDType dtype = ComputeDType::kBF16;
  std::string logits;  // a file to write them to; empty: none
  PlaceSettings places;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  /// None for a saved model by itself.
  absl::StatusOr<std::optional<Config>> ConfigOfRun() const;
  /// Whether the model is that of a run whose data.document_mask takes documents apart where the files do not.
  absl::StatusOr<bool> KeepsDocumentsApart() const;
  /// Tokens of a row of the first that has rows; 0 = none has, or none can be opened, which is told when it is read.
  int64_t RowsOf(const std::vector<std::string>& files) const;
  absl::StatusOr<Dataset> Open(Places& access, const LoadedModel& loaded, const std::string& file,
                               int64_t length) const;
  /// Microbatches of it that are evaluated.
  int64_t CountOf(const Dataset& dataset) const;
  /// `writer`: where logits go, or null.
  absl::StatusOr<LossSum> LossOf(const LoadedModel& loaded, const std::string& file, int64_t length,
                                 SafetensorsWriter* writer) const;
  /// InvalidArgument if the logits would replace what is read.
  absl::Status CheckLogitsPlace(const LoadedModel& loaded) const;
  /// A file for the logits of these; null if none is wanted.
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> OpenLogits(const LoadedModel& loaded,
                                                                const std::vector<std::string>& files,
                                                                int64_t length) const;
  absl::Status PrintLosses(const LoadedModel& loaded, const std::vector<std::string>& files, int64_t length) const;
  absl::Status PrintAnswers(const LoadedModel& loaded, const std::string& file, int64_t length) const;
};

}  // namespace holdfast
