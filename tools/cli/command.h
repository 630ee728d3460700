#pragma once
// What every command of `holdfast` is made of. A command is a struct: its members are what its arguments say, AddTo
// tells the parser about them, Run does the work.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// Exit codes of the binary; 128 + signal for a run stopped by one.
enum ExitCode : int {
  kExitDone = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitRetry = 75,  // EX_TEMPFAIL: the same command may succeed later
};

/// Set by the command that was parsed: does its work and returns the exit code. An error is printed by main, last, on
/// one line, and exits with kExitFailure; Unavailable (who is asked does not answer) and Aborted (another process is at
/// work there) with kExitRetry; a mistake with kExitUsage, but of a run only as a UsageError: what is missing while it
/// goes on may come back.
using CommandBody = std::function<absl::StatusOr<int>()>;

/// Whether the user has to change the command line, the config, or a file that they name: NotFound, InvalidArgument,
/// Unimplemented.
bool IsMistake(const absl::Status& status);

/// An error that is printed as it is, without "error: " before it, and that exits with kExitUsage.
absl::Status UsageError(absl::string_view text);
bool IsUsageError(const absl::Status& status);
/// A mistake becomes a UsageError with "error: " before it; all else stays as it is.
absl::Status AsUsageError(const absl::Status& status);
template <typename T>
absl::StatusOr<T> AsUsageError(absl::StatusOr<T> value) {
  return value.ok() ? std::move(value) : AsUsageError(value.status());
}
/// Of reading a config: a mistake becomes a UsageError as it is, whose lines begin with the file's name; all else
/// stays.
absl::Status AsConfigError(const absl::Status& status);
/// Of opening token files beside no run: what does not fit the model, the tokenizer or the length that they are read
/// for is a mistake; all else stays.
absl::Status AsDataMistake(const absl::Status& status);
/// What a command that is not of a run exits with, of an error.
int ExitCodeOf(const absl::Status& error);

/// For an option of an integer type: CLI::Range says of 1e3, too, that it is not in the range.
CLI::Validator WholeNumberWithin(int64_t least, int64_t most);
/// For an option of type double: CLI::Range lets "nan" through.
CLI::Validator NumberWithin(double least, double most);
/// For an option of type double: CLI::PositiveNumber lets "nan" through, and tells the range that it wants with 309
/// digits.
CLI::Validator Positive();
/// For one of any type: CLI::NonNegativeNumber tells the range that it wants with 309 digits.
CLI::Validator NotNegative();
/// For one of type uint64_t: without it -1 is the largest.
CLI::Validator IsSeed();
/// For --date of a chat template, which looks at it only where it writes the date.
CLI::Validator IsDate();

/// For a file or a directory. An empty one is refused, as it comes of a shell's variable that is not set, and so is the
/// next option, which is taken where the value is missing (`--run-dir= --overwrite`).
CLI::Validator IsPath();

/// An option, or an argument by its position, whose value IsPath. `path`: a string, or a vector of them.
template <typename Path>
CLI::Option* AddPathOption(CLI::App& command, const std::string& name, Path& path, const std::string& help) {
  return command.add_option(name, path, help)->type_name("PATH")->check(IsPath());
}

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

/// An option whose value is one of these names. An error of CLI::CheckedTransformer has the numbers behind them, too.
/// `value`: a T, or an optional one.
template <typename Value, typename T>
CLI::Option* AddChoice(CLI::App& command, const std::string& option, Value& value, const Choices<T>& choices,
                       const std::string& help) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  const auto set = [&value, choices](const std::string& name) {
    for (const auto& choice : choices) {
      if (choice.first == name) value = choice.second;
    }
  };
  return command.add_option_function<std::string>(option, set, help)->check(CLI::IsMember(names));
}

template <typename Command>
CLI::App* AddCommand(CLI::App& parent, CommandBody& body, const std::string& name, const std::string& description) {
  CLI::App* app = parent.add_subcommand(name, description);
  auto command = std::make_shared<Command>();  // lives as long as the callback that reads it
  command->AddTo(*app);
  app->callback([command, &body] { body = [command] { return command->Run(); }; });
  return app;
}

}  // namespace holdfast
