#pragma once
// holdfast sample: text from a saved model.

#include <cstdint>
#include <string>
#include <vector>

#include "models/runtime/loaded_model.h"
#include "models/sampler.h"
#include "tools/cli/command.h"

namespace holdfast {

struct SampleCommand {
  std::string model, prompt = "\n";
  bool chat = false;   // the prompt is a message to the model, by its chat template
  std::string system;  // a message before it
  std::vector<std::string> stops;
  SampleOptions options;
  int64_t threads = 0;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  struct Start {
    std::string text;
    std::vector<int32_t> ends;  // tokens after which there is no more
  };
  absl::StatusOr<Start> StartOf(const LoadedModel& loaded) const;
};

}  // namespace holdfast
