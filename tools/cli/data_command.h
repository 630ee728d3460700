#pragma once
// holdfast data pack|show: text to token files, and what is in one.

#include "tools/command.h"

namespace holdfast {

void AddDataCommand(CLI::App& parent, CommandBody& body);

}  // namespace holdfast
