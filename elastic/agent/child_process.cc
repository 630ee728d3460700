#include "elastic/agent/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kMaxLineBytes = 300;
constexpr int kExecFailed = 127;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const ChildCommand& command) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  for (const auto& [name, value] : command.environment) {
    std::erase_if(environment, [&, &name = name](const std::string& entry) { return entry.rfind(name + "=", 0) == 0; });
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

// Between fork and exec of a process with threads: nothing but system calls.
[[noreturn]] void BecomeChild(int parent, int log, int input, char* const* argv, char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);  // it died before it could tie us to it
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &standard, nullptr);
  sigset_t none;  // only now: a signal that waits must not find our handlers
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  dup2(input >= 0 ? input : open("/dev/null", O_RDONLY), STDIN_FILENO);
  syscall(SYS_close_range, 3u, ~0u, 0u);
  execve(argv[0], argv, environment);
  constexpr char kMessage[] = "cannot execute the worker's binary\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kExecFailed);
}

// A log holds anything; what is quoted from it goes into JSON and onto consoles.
std::string Printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string DescribeExit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
}

/// Whether the last line of its log says why. Who is killed from outside has no last words.
bool SaysWhy(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status) != 0;
  return WTERMSIG(wait_status) != SIGKILL && WTERMSIG(wait_status) != SIGTERM;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildCommand& command) {
  // Somebody may have removed the logs. Nothing above is made: a run directory that is missing may come back. If this
  // fails, so does the log.
  mkdir(std::filesystem::path(command.log_path).parent_path().c_str(), 0777);
  const int log = open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
  if (log < 0) return ErrnoToStatus(errno, absl::StrCat("cannot write the log ", command.log_path));
  ChildProcess child;
  child.log_path_ = command.log_path;
  struct stat info {};
  if (fstat(log, &info) == 0) child.log_start_ = info.st_size;
  std::vector<std::string> arguments = command.argv, environment = Environment(command);
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  int input[2] = {-1, -1};
  if (command.input && pipe2(input, O_CLOEXEC) != 0) {
    const int error = errno;
    close(log);
    return ErrnoToStatus(error, absl::StrCat("cannot start ", command.argv[0]));
  }
  const int parent = getpid();
  const int pid = fork();
  if (pid == 0) BecomeChild(parent, log, input[0], argv.data(), envp.data());
  const int error = errno;
  close(log);
  child.input_end_ = input[0];
  child.input_ = input[1];
  child.pid_ = pid;
  if (pid > 0) setpgid(pid, pid);  // as the child does: whoever comes first
  if (pid < 0) return ErrnoToStatus(error, absl::StrCat("cannot start ", command.argv[0]));
  child.exit_fd_ = static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0));
  return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(exit_fd_, other.exit_fd_);
  std::swap(input_, other.input_);
  std::swap(input_end_, other.input_end_);
  std::swap(log_path_, other.log_path_);
  std::swap(log_start_, other.log_start_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    KillGroup();
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (exit_fd_ >= 0) close(exit_fd_);
  CloseInput();
}

void ChildProcess::WriteInput(const std::string& text) const {
  [[maybe_unused]] const ssize_t written = write(input_, text.data(), text.size());
}

void ChildProcess::CloseInput() {
  for (int* fd : {&input_, &input_end_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

bool ChildProcess::IsFrozen() const {
  siginfo_t info{};
  return pid_ > 0 && waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

void ChildProcess::KillGroup() const {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
}

std::optional<int> ChildProcess::TryWait() {
  if (pid_ <= 0) return std::nullopt;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno != ECHILD) return std::nullopt;
    pid_ = -1;  // somebody else has reaped it, and how it ended is not known
    return W_EXITCODE(1, 0);
  }
  if (info.si_pid == 0) return std::nullopt;
  KillGroup();  // what it has started ends with it; while it is not reaped, nobody else can have its number
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return status;
}

std::string ChildProcess::LastLogLine() const {
  std::ifstream file(log_path_, std::ios::binary);
  file.seekg(0, std::ios::end);
  const int64_t size = file.tellg();
  const int64_t begin = size < log_start_ ? 0 : log_start_;  // who replaces a run (--overwrite) empties its logs
  const int64_t first = std::max(begin, size - 4 * kMaxLineBytes);
  if (!file || first >= size) return "";
  std::string tail(static_cast<size_t>(size - first), '\0');
  file.seekg(first);
  file.read(tail.data(), size - first);
  tail.erase(tail.find_last_not_of(" \r\n\t") + 1);
  tail.erase(0, tail.find_last_of("\r\n") + 1);  // a progress bar ends its lines with \r
  return Printable(tail.substr(0, kMaxLineBytes));
}

std::string ChildProcess::CauseOfEnd(int wait_status) const {
  const std::string cause = DescribeExit(wait_status), last_line = LastLogLine();
  return last_line.empty() || !SaysWhy(wait_status) ? cause : absl::StrCat(cause, ": ", last_line);
}

}  // namespace holdfast
