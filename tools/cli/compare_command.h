#pragma once
// holdfast compare RUN_A RUN_B: whether two runs are the same bits.

#include "tools/command.h"

namespace holdfast {

/// Exit codes: 0 every committed step of the shorter run is the same in both; 1 not, with the first difference printed;
/// 2 a run cannot be read.
CLI::App* AddCompareCommand(CLI::App& parent, CommandBody& body);

}  // namespace holdfast
