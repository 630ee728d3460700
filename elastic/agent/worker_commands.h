#pragma once
// The command line of each worker process that an agent starts.

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/agent/child_process.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct AgentSettings {
  std::string node{};                     // failure domain
  std::string host = "127.0.0.1";         // where other workers reach the workers of this machine
  std::string coordinator{};              // HOST:PORT; empty: in the lease that `connection` names
  std::string config_path{};              // what the workers load
  std::vector<std::string> overrides{};   // and change in it
  std::vector<std::string> connection{};  // options of `holdfast worker`: token and certificates
  int64_t num_workers = 1;
  int64_t workers_of_host = 0;            // with those of other agents there; at least num_workers
  int64_t first_of_host = 0;              // which of those the first one here is
  std::string binary = "/proc/self/exe";  // this one, also if the file has been replaced meanwhile
};

/// Of worker `index` of an agent's.
std::string WorkerName(const std::string& node, int64_t index);

/// `holdfast worker`, with a log in `directory`, once for each worker.
std::vector<ChildCommand> WorkerCommands(const Config& config, const RunDirectory& directory,
                                         const AgentSettings& settings);

}  // namespace holdfast
