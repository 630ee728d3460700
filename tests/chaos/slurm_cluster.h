#pragma once
// A Slurm of this machine: munge, slurmctld on the host "lead", and a slurmd on each of the hosts n1, n2, ... Each host
// is a network, process and host name namespace, so that it has an address of its own and dies as a whole. Needs root
// and the packages of Slurm and munge; what is started ends with this process, however that ends.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/logged_process.h"
#include "tests/chaos/network.h"

namespace holdfast::chaos {

class SlurmCluster {
 public:
  /// Empty if this machine can do it, else why not.
  static std::string WhyNot();

  /// Starts it in a new directory, and waits until all nodes are idle. From then on this thread is on "lead".
  SlurmCluster(std::string directory, int nodes);

  /// What a shell command prints, as run on "lead".
  std::string Output(const std::string& command) const;
  /// A field of `scontrol show job`; empty if there is none.
  std::string Job(const std::string& job, const std::string& field) const;
  /// Waits until the field of the job is that.
  bool Await(const std::string& job, const std::string& field, const std::string& value) const;

  /// The node's power fails, and Slurm learns of it.
  void Lose(const std::string& node);
  /// A node that was lost is there again, idle.
  void Return(const std::string& node);

 private:
  void WriteConfig(int nodes) const;
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void StartDaemon(const std::string& host, const std::string& name, std::vector<std::string> command);
  void StartNode(const std::string& node);
  void AwaitIdle(const std::string& node) const;

  std::string directory_;
  Network network_;
  std::map<std::string, std::unique_ptr<LoggedProcess>> daemons_;
};

}  // namespace holdfast::chaos
