#include "tests/framework/s3/peer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_replace.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

std::string PeersPython() {
  const char* chosen = std::getenv("HOLDFAST_PEERS");
  const std::string peers = chosen != nullptr ? chosen : SourceDir() + "/build/peers";
  const std::string python = peers + "/bin/python";
  return std::filesystem::exists(python) ? python : "";
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

[[noreturn]] void Exec(std::vector<std::string> words, const std::string& log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

std::unique_ptr<PeerProcess> PeerProcess::Start(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string python = PeersPython();
  if (python.empty()) return nullptr;
  std::vector<std::string> words = {python, SourceDir() + "/tests/framework/s3/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return StartProgram(std::move(words));
}

std::unique_ptr<PeerProcess> PeerProcess::StartProgram(std::vector<std::string> words) {
  std::unique_ptr<PeerProcess> process(new PeerProcess);
  process->folder_ = (std::filesystem::temp_directory_path() / "holdfast-peer-XXXXXX").string();
  if (mkdtemp(process->folder_.data()) == nullptr) std::abort();
  for (std::string& word : words) word = absl::StrReplaceAll(word, {{"{}", process->folder_}});
  const pid_t parent = getpid();
  process->pid_ = fork();
  if (process->pid_ == 0) Exec(words, process->folder_ + "/log", parent);
  return process;
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

bool PeerProcess::IsRunning() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

int PeerProcess::WaitForNumber(const std::string& file, const std::string& before) const {
  for (int i = 0; i < 12'000 && IsRunning(); ++i) {
    const std::string text = Slurp(folder_ + "/" + file);
    const size_t at = text.find(before);
    const bool whole = at != std::string::npos && text.size() > at + before.size() &&
                       (file != "log" || text.find('\n', at) != std::string::npos);
    if (whole) return std::atoi(&text[at + before.size()]);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::fprintf(stderr, "a server of the tests did not start:\n%s\n", Slurp(folder_ + "/log").c_str());
  std::abort();
}

}  // namespace holdfast
