#pragma once
// holdfast coordinator: decides for a run over several machines.

#include <string>

#include "elastic/wire/tls_files.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct CoordinatorCommand {
  RunArguments run;
  StartArguments start;
  std::string listen = "127.0.0.1:29400", token_file;
  TlsFiles tls;
  bool new_workers = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
