#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/build.h"
#include "framework/base/log.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/thread_limits.h"
#include "kernels/ops.h"
#include "tools/cli/commands.h"

namespace {

/// A standard stream that is closed would be the number of the next file that is opened, and what is printed would go
/// into that file. Reading from it and writing to it still fail.
void OpenClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

/// HOLDFAST_INSTRUCTION_SET limits kernels to one of the processor's: to show that it decides no bit.
bool ChooseInstructionSet() {
  const char* name = std::getenv("HOLDFAST_INSTRUCTION_SET");
  if (name == nullptr || holdfast::kernels::UseCpuInstructionSet(name)) return true;
  std::fprintf(stderr, "HOLDFAST_INSTRUCTION_SET: this processor has %s, not '%s'\n",
               absl::StrJoin(holdfast::kernels::CpuInstructionSets(), ", ").c_str(), name);
  return false;
}

/// Of this process and, by its environment, of those it starts.
void UseLogLevel(const std::string& name) {
  if (holdfast::SetLogLevel(name).ok()) setenv(holdfast::kLogLevelVariable, name.c_str(), 1);
}

/// The parser would call a wrong one --log-level.
bool ChooseLogLevel() {
  const char* name = std::getenv(holdfast::kLogLevelVariable);
  if (name == nullptr || *name == '\0' || holdfast::SetLogLevel(name).ok()) return true;
  std::fprintf(stderr, "%s: '%s' is none of %s\n", holdfast::kLogLevelVariable, name,
               absl::StrJoin(holdfast::LogLevelNames(), ", ").c_str());
  return false;
}

bool IsOfARun(const CLI::App& app) {
  const auto commands = {"train", "coordinator", "agent", "worker", "sweep"};
  return std::any_of(commands.begin(), commands.end(), [&](const char* name) { return app.got_subcommand(name); });
}

/// What a command prints is its result, unless it is told of a run, which matters more than what was said about it.
int AfterPrinting(const CLI::App& app, int code) {
  const bool is_lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (code != holdfast::kExitDone || !is_lost || IsOfARun(app)) return code;
  std::fprintf(stderr, "error: standard output could not be written: %s\n", std::strerror(errno));
  return holdfast::kExitFailure;
}

/// What went wrong, in words for users; allocates nothing.
const char* CauseOf(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "no memory left: look at the machine's, and at limits (ulimit -v, a container's, vm.overcommit_memory)";
  }
  if (const auto* of_system = dynamic_cast<const std::system_error*>(&error)) {
    if (of_system->code() == std::errc::resource_unavailable_try_again) return holdfast::NoThreadText();
  }
  return error.what();
}

/// An exception on a thread other than the first ends up here.
[[noreturn]] void EndWithCause() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", CauseOf(error));
    std::_Exit(holdfast::kExitFailure);
  } catch (...) {
  }
  std::abort();
}

int Main(int argc, char** argv) {
  if (!ChooseInstructionSet() || !ChooseLogLevel()) return holdfast::kExitUsage;
  CLI::App app{
      "Holdfast trains transformer language models; the loss curve is bit for bit the same at any world size."};
  app.set_version_flag("--version", absl::StrCat(HOLDFAST_VERSION, " build ", holdfast::BuildId()));
  app.fallthrough();  // after a command's name, too
  app.add_option_function<std::string>("--log-level", UseLogLevel, "lines on stderr: this level and those above it")
      ->envname(holdfast::kLogLevelVariable)
      ->type_name("LEVEL")
      ->check(CLI::IsMember(holdfast::LogLevelNames()));
  app.failure_message(holdfast::ParseErrorText);
  holdfast::CommandBody body;
  holdfast::AddCommands(app, body);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return AfterPrinting(app, app.exit(error) == 0 ? holdfast::kExitDone : holdfast::kExitUsage);
  }
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the ends of processes we start are nobody's to ask for
  if (IsOfARun(app)) std::signal(SIGPIPE, SIG_IGN);  // it goes on when whoever reads what it prints has gone
  const absl::StatusOr<int> exit_code = body();
  if (exit_code.ok()) return AfterPrinting(app, *exit_code);
  std::fflush(stdout);
  const bool usage = holdfast::IsUsageError(exit_code.status());
  const std::string message(exit_code.status().message());
  std::fprintf(stderr, "%s%s\n", usage ? "" : "error: ", message.c_str());
  if (IsOfARun(app) && !usage) {
    if (holdfast::IsOutOfRoom(exit_code.status())) return holdfast::kExitRetry;
    if (holdfast::IsMistake(exit_code.status())) return holdfast::kExitFailure;
  }
  return holdfast::ExitCodeOf(exit_code.status());
}

}  // namespace

int main(int argc, char** argv) {
  OpenClosedStreams();  // before anything else is opened
  std::set_terminate(EndWithCause);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is a full disk
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {  // bad_alloc, and bugs of third-party libraries
    std::fprintf(stderr, "error: %s\n", CauseOf(error));
    return holdfast::kExitFailure;
  }
}
