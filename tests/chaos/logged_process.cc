#include "tests/chaos/logged_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace holdfast::chaos {

LoggedProcess::LoggedProcess(std::vector<std::string> arguments, std::string log_path,
                             std::vector<std::pair<std::string, std::string>> environment, const std::string& program)
    : log_path_(std::move(log_path)) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int log = open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(log);
}

LoggedProcess::~LoggedProcess() {
  if (Running()) {
    Signal(SIGKILL);
    ExitCode();
  }
}

void LoggedProcess::Signal(int signal) const { kill(pid_, signal); }

std::optional<int> LoggedProcess::Poll() {
  int status = 0;
  if (!exit_code_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return exit_code_;
}

int LoggedProcess::ExitCode() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTestTimeoutSeconds);
  while (!Poll().has_value() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Poll().value_or(-1);
}

std::string LoggedProcess::Log() const {
  std::stringstream text;
  text << std::ifstream(log_path_).rdbuf();
  return text.str();
}

}  // namespace holdfast::chaos
