#pragma once
// holdfast eval: the loss of a saved model on token files.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/places/places.h"
#include "tools/cli/command.h"

namespace holdfast {

struct EvalCommand {
  std::string model;
  std::vector<std::string> data;
  int64_t sequence = 0, batch = 4, microbatches = 0, threads = 0;
  PlaceSettings places;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
