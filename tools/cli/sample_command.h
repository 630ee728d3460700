#pragma once
// holdfast sample: text from a saved model.

#include <cstdint>
#include <string>

#include "models/sampler.h"
#include "tools/cli/command.h"

namespace holdfast {

struct SampleCommand {
  std::string model, prompt = "\n";
  SampleOptions options;
  int64_t threads = 0;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
