#pragma once
// Runs the holdfast binary as a user would, in a process of its own, with a time limit.

#include <filesystem>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace holdfast::integration {

/// How long a test waits for what has to come. No measure of speed: a busy machine is far from needing it.
inline constexpr double kTestTimeoutSeconds = 300;

struct CommandResult {
  int exit_code = -1;  // 128 + signal if it was killed
  std::string output;  // stdout and stderr together
};

class Command {
 public:
  /// Ends with the thread that makes it, also where that is killed.
  explicit Command(std::vector<std::string> arguments, std::string program = TestedBinary());
  ~Command();  // kills what still runs

  void Signal(int signal);
  /// Blocks until the output contains `text`; false if the process ended or the time is up first, which kills it.
  bool WaitForOutput(const std::string& text, double seconds = kTestTimeoutSeconds);
  /// Blocks until the process has ended; one that prints nothing for too long is killed.
  CommandResult Wait();

 private:
  bool ReadSome(double seconds);

  int pid_ = -1, pipe_ = -1;
  std::string output_;
};

std::string ReadAll(const std::filesystem::path& path);
/// The blocks of a page that begin with ```bash.
std::vector<std::string> CommandsOf(const std::string& page);
/// Makes the directories on the way.
void WriteAll(const std::filesystem::path& path, const std::string& text);

inline CommandResult RunHoldfast(std::vector<std::string> arguments) { return Command(std::move(arguments)).Wait(); }

}  // namespace holdfast::integration
