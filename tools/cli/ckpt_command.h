#pragma once
// holdfast ckpt: look at checkpoints, check, thin out, convert and compare them. No training process is needed.

#include "tools/cli/command.h"

namespace holdfast {

void AddCkptCommand(CLI::App& parent, CommandBody& body);

}  // namespace holdfast
