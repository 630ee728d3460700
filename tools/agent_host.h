#pragma once
// An agent and its line to the coordinator: starts the workers of this machine, reports their exits, and ends when the
// run does.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "elastic/agent/agent.h"
#include "elastic/control/control_link.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct AgentSettings {
  std::string node;                     // failure domain
  std::string host = "127.0.0.1";       // where other workers reach the workers of this machine
  std::string coordinator;              // HOST:PORT
  std::string config_path;              // what the workers load
  std::vector<std::string> overrides;   // and change in it
  std::vector<std::string> connection;  // options of `holdfast worker`: token and certificates
  int64_t num_workers = 1;
};

class AgentHost final : public ControlLinkHandler {
 public:
  /// Starts the workers. `config`, `directory` and `link` must outlive the host.
  AgentHost(const Config& config, const RunDirectory& directory, const AgentSettings& settings, ControlLink& link);
  ~AgentHost() override;

  /// Waits for the end of the run, or for all workers to be given up; then for the workers to be gone. The exit code.
  int Wait();
  /// Ends the workers, and Wait.
  void Stop(int signal);

  void OnConnected() override;
  void OnMessage(const CoordinatorMessage& message) override;
  void OnDisconnected(const std::string&) override {}

 private:
  std::vector<ChildCommand> Commands(const Config& config, const RunDirectory& directory) const;
  void OnExit(const WorkerExit& exit);

  AgentSettings settings_;
  ControlLink& link_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::optional<int> exit_code_;
  int64_t running_;
  int last_exit_code_ = 0;

  std::unique_ptr<Agent> agent_;
};

/// The name of this machine as a failure domain: SLURM_NODEID, else the host name.
std::string DefaultNode();

}  // namespace holdfast
