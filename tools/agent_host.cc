#include "tools/agent_host.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "framework/base/thread_pool.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kGrace{10'000};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

}  // namespace

std::string DefaultNode() {
  const char* slurm = std::getenv("SLURM_NODEID");
  return slurm != nullptr ? absl::StrCat("node-", slurm) : HostName();
}

AgentHost::AgentHost(const Config& config, const RunDirectory& directory, const AgentSettings& settings,
                     ControlLink& link)
    : settings_(settings), link_(link), running_(settings.num_workers) {
  link_.Start(*this);
  const Agent::Options options{.max_restarts = config.elastic.max_restarts};
  agent_ = std::make_unique<Agent>(options, Commands(config, directory), [this](const WorkerExit& e) { OnExit(e); });
}

AgentHost::~AgentHost() {
  agent_.reset();
  link_.Stop();
}

std::vector<ChildCommand> AgentHost::Commands(const Config& config, const RunDirectory& directory) const {
  std::error_code error;
  std::filesystem::create_directories(directory.logs(), error);  // a failure shows when the first worker starts
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe", error);
  // Workers of one machine share its processors, unless the config says how many each may use.
  const int64_t threads = config.train.threads > 0
                              ? config.train.threads
                              : std::max<int64_t>(1, AvailableProcessors() / settings_.num_workers);
  std::vector<ChildCommand> commands;
  for (int64_t i = 0; i < settings_.num_workers; ++i) {
    ChildCommand command;
    command.name = absl::StrCat(settings_.node, "/", i);
    command.log_path = absl::StrCat(directory.logs(), "/", settings_.node, "-", i, ".log");
    command.argv = {binary,
                    "worker",
                    settings_.config_path,
                    "--run-dir",
                    directory.root(),
                    "--name",
                    command.name,
                    "--node",
                    settings_.node,
                    "--host",
                    settings_.host,
                    "--coordinator",
                    settings_.coordinator,
                    "--workers-here",
                    absl::StrCat(settings_.num_workers)};
    command.argv.insert(command.argv.end(), settings_.connection.begin(), settings_.connection.end());
    for (const std::string& override : settings_.overrides) {
      command.argv.insert(command.argv.end(), {"--set", override});
    }
    command.argv.insert(command.argv.end(), {"--set", absl::StrCat("train.threads=", threads)});
    commands.push_back(std::move(command));
  }
  return commands;
}

void AgentHost::OnConnected() {
  link_.Send(AgentHelloMessage{.node = settings_.node,
                               .host = HostName(),
                               .pid = getpid(),
                               .num_workers = static_cast<int>(settings_.num_workers)});
}

void AgentHost::OnMessage(const CoordinatorMessage& message) {
  const auto* end = std::get_if<EndMessage>(&message);
  if (end == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (!exit_code_.has_value()) exit_code_ = end->exit_code;
  changed_.notify_all();
}

void AgentHost::OnExit(const WorkerExit& exit) {
  link_.Send(
      WorkerExitMessage{.id = {exit.name, exit.incarnation}, .cause = exit.cause, .restarting = exit.restarting});
  if (exit.restarting) return;
  const std::lock_guard lock(mutex_);
  last_exit_code_ = exit.exit_code;
  --running_;
  changed_.notify_all();
}

int AgentHost::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return exit_code_.has_value() || running_ == 0; });
  // Workers hear of the end as well; give the coordinator's word to us the time it needs.
  changed_.wait_for(lock, std::chrono::seconds(2), [&] { return exit_code_.has_value(); });
  const int exit_code = exit_code_.value_or(last_exit_code_);
  lock.unlock();
  agent_->Stop(SIGTERM, kGrace);
  return exit_code;
}

void AgentHost::Stop(int signal) {
  const std::lock_guard lock(mutex_);
  if (!exit_code_.has_value()) exit_code_ = 128 + signal;
  changed_.notify_all();
}

}  // namespace holdfast
