#pragma once
// holdfast eval: the loss of a saved model on token files, and how many questions it answers rightly.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/places/places.h"
#include "models/runtime/loaded_model.h"
#include "tools/cli/command.h"

namespace holdfast {

struct EvalCommand {
  std::string model;
  std::vector<std::string> data;
  int64_t sequence = 0, batch = 4, microbatches = 0, threads = 0;
  ComputeDType dtype = ComputeDType::kBF16;
  PlaceSettings places;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  absl::StatusOr<LossSum> LossOf(const LoadedModel& loaded, const std::vector<std::string>& files,
                                 int64_t length) const;
  absl::Status PrintLosses(const LoadedModel& loaded, const std::vector<std::string>& files, int64_t length) const;
  absl::Status PrintAnswers(const LoadedModel& loaded, const std::string& file, int64_t length) const;
};

}  // namespace holdfast
