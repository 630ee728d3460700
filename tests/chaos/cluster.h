#pragma once
// A run of separate processes, as on several machines: a coordinator and agents, each started by its own command and
// hurt on its own.
//
// Example:
//   Cluster cluster(*stage_, Run());
//   cluster.StartCoordinator();
//   cluster.StartAgent("a", 2);
//   cluster.agent("a").Signal(SIGKILL);

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/chaos_run.h"
#include "tests/framework/net/test_ports.h"

namespace holdfast::chaos {

class Cluster {
 public:
  struct Options {
    int workers = 4;                                                 // wanted
    std::vector<std::string> overrides{};                            // --set, of coordinator and agents
    std::string listen = FreeAddress();                              // of coordinators and for agents
    int slowdown_milliseconds = 4;                                   // per microbatch, so that metrics stay short
    std::vector<std::pair<std::string, std::string>> environment{};  // of agents, and so of their workers
  };
  /// `run` is the run directory; it must lie on the stage.
  Cluster(const Stage& stage, std::string run, Options options);
  Cluster(const Stage& stage, std::string run) : Cluster(stage, std::move(run), Options()) {}

  const std::string& run() const { return run_; }
  LoggedProcess& coordinator() { return *coordinator_; }
  LoggedProcess& agent(const std::string& node) { return *agents_.at(node); }

  /// Starts the coordinator, and waits until it can be reached.
  bool StartCoordinator(const std::vector<std::string>& more = {});
  /// Which stays free until it is used, and between two coordinators.
  static std::string FreeAddress() { return "127.0.0.1:" + std::to_string(PortForLater()); }
  /// For the next that is started.
  void ListensAt(const std::string& address) { options_.listen = address; }
  /// `host` may be empty: it finds out by itself.
  void StartAgent(const std::string& node, int workers, const std::string& host = "127.0.0.1",
                  const std::vector<std::string>& overrides = {});

  /// SIGKILL, and waits for the end.
  static void Kill(LoggedProcess& process);

  /// Training with so many workers, some steps past where it was.
  testing::AssertionResult GoesOn(int workers);
  /// SIGTERM to the coordinator: everybody ends by itself with 143, nobody is left, and what was done has the bits of
  /// the undisturbed run.
  void StopAndCompare();
  /// Waits for the end of coordinator and agents, and checks their codes.
  void ExpectEnd(int exit_code);
  /// Generations that never fall, and the bits of the undisturbed run.
  void Compare() const;

  /// As the coordinator says it when it can be reached.
  RunView Look();
  std::vector<WorkerView> Members();

 private:
  std::vector<std::string> Set(const std::vector<std::string>& more) const;

  const Stage& stage_;
  Options options_;
  std::string run_;
  std::unique_ptr<LoggedProcess> coordinator_;
  std::map<std::string, std::unique_ptr<LoggedProcess>> agents_;
};

}  // namespace holdfast::chaos
