#pragma once
// holdfast status: the state of a run.

#include <string>

#include "elastic/wire/tls_files.h"
#include "tools/cli/command.h"

namespace holdfast {

struct StatusCommand {
  std::string target, token_file;  // target: a run directory, or HOST:PORT of the coordinator
  TlsFiles tls;
  bool watch = false, json = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
