#pragma once
// All commands of `holdfast`.

#include "tools/cli/command.h"

namespace holdfast {

/// Parsing `app` then sets `body`, which must outlive it.
void AddCommands(CLI::App& app, CommandBody& body);

}  // namespace holdfast
