#pragma once
// holdfast data: makes and shows token files.

#include <cstdint>
#include <string>

#include "framework/data/pack.h"
#include "tools/cli/command.h"

namespace holdfast {

struct DataPackCommand {
  PackOptions options;
  std::string tokenizer = "bytes";
  bool append_eot = false, no_eot = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

struct DataShowCommand {
  std::string path;
  std::string tokenizer;
  int64_t tokens = 128;
  int64_t at = 0;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
