#include "tests/integration/command.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace holdfast::integration {

Command::Command(std::vector<std::string> arguments, std::string program) {
  int ends[2];
  if (pipe(ends) != 0) {
    std::perror("pipe");
    std::abort();
  }
  arguments.insert(arguments.begin(), std::move(program));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) {  // kill would take that for all processes, and waitpid for any
    std::perror("fork");
    std::abort();
  }
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // ctest kills a test that takes too long
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

Command::~Command() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

void Command::Signal(int signal) { kill(pid_, signal); }

bool Command::ReadSome(double seconds) {
  pollfd p{.fd = pipe_, .events = POLLIN, .revents = 0};
  if (poll(&p, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return false;
  char buffer[4096];
  const ssize_t n = read(pipe_, buffer, sizeof(buffer));
  if (n <= 0) return false;
  output_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool Command::WaitForOutput(const std::string& text, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (output_.find(text) == std::string::npos) {
    const std::chrono::duration<double> left = deadline - Clock::now();
    if (left.count() <= 0) {
      Signal(SIGKILL);
      return false;
    }
    if (!ReadSome(left.count()) && Clock::now() < deadline) return false;
  }
  return true;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> CommandsOf(const std::string& page) {
  const std::string begin = "```bash\n", end = "\n```";
  std::vector<std::string> blocks;
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    blocks.push_back(page.substr(at, page.find(end, at) - at));
  }
  return blocks;
}

void WriteAll(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

CommandResult Command::Wait() {
  while (ReadSome(kTestTimeoutSeconds)) {
  }
  CommandResult result;
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTestTimeoutSeconds);
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.output = output_;
  return result;
}

}  // namespace holdfast::integration
