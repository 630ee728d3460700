#pragma once
// What every subcommand of `holdfast` is made of.

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// Exit codes of the binary; 128 + signal for a run stopped by one.
enum ExitCode : int { kExitDone = 0, kExitFailure = 1, kExitUsage = 2 };

/// Set by the subcommand that was parsed: does its work and returns the exit code. An error is printed by main, last,
/// on one line, and exits with kExitFailure.
using CommandBody = std::function<absl::StatusOr<int>()>;

/// An error that main prints as it is, without "error: " before it, and that exits with kExitUsage.
absl::Status UsageError(absl::string_view text);

void AddTrainCommand(CLI::App& parent, CommandBody& body);
void AddValidateCommand(CLI::App& parent, CommandBody& body);
void AddTuneCommand(CLI::App& parent, CommandBody& body);
void AddSampleCommand(CLI::App& parent, CommandBody& body);
void AddEvalCommand(CLI::App& parent, CommandBody& body);
void AddWorkerCommand(CLI::App& parent, CommandBody& body);
/// coordinator, agent, status
void AddClusterCommands(CLI::App& parent, CommandBody& body);

}  // namespace holdfast
