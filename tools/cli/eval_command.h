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
#include "framework/data/token_file.h"
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
  using TokenFiles = std::vector<std::shared_ptr<const TokenFile>>;

  /// None for a saved model by itself.
  absl::StatusOr<std::optional<Config>> ConfigOfRun() const;
  /// Whether the model is that of a run whose data.document_mask takes documents apart where the files do not.
  absl::StatusOr<bool> KeepsDocumentsApart() const;
  absl::StatusOr<Dataset> Open(Places& access, const LoadedModel& loaded, const std::string& path,
                               std::shared_ptr<const TokenFile> file, int64_t length) const;
  /// Microbatches of it that are evaluated.
  int64_t CountOf(const Dataset& dataset) const;
  /// `writer`: where logits go, or null.
  absl::StatusOr<LossSum> LossOf(const LoadedModel& loaded, const Dataset& dataset, const std::string& file,
                                 SafetensorsWriter* writer) const;
  /// InvalidArgument if the logits would replace what is read.
  absl::Status CheckLogitsPlace(const LoadedModel& loaded) const;
  /// A file for the logits of these; null if none is wanted.
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> OpenLogits(const LoadedModel& loaded, const TokenFiles& files,
                                                                const std::vector<Dataset>& datasets) const;
  absl::Status PrintLosses(Places& access, const LoadedModel& loaded, const std::vector<std::string>& paths,
                           const TokenFiles& files, int64_t length) const;
  absl::Status PrintAnswers(const LoadedModel& loaded, const std::string& file, int64_t length) const;
};

}  // namespace holdfast
