#include "tests/chaos/slurm_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

std::vector<std::string> Hosts(int nodes) {
  std::vector<std::string> hosts{"lead"};
  for (int node = 1; node <= nodes; ++node) hosts.push_back("n" + std::to_string(node));
  return hosts;
}

bool Succeeds(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

void OrThrow(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

}  // namespace

std::string SlurmCluster::WhyNot() {
  for (const std::string program : {"munged", "slurmctld", "slurmd", "sbatch", "setpriv", "unshare"}) {
    if (!Succeeds("PATH=$PATH:/usr/sbin command -v " + program)) {
      return program + " is not installed (tools/setup.sh --with-test)";
    }
  }
  if (const std::string why_not = Network::WhyNot(); !why_not.empty()) return why_not;
  return Succeeds("unshare --uts --pid --fork --mount-proc true")
             ? ""
             : "this kernel or container does not allow process namespaces";
}

SlurmCluster::SlurmCluster(std::string directory, int nodes)
    : directory_(std::move(directory)), network_(Hosts(nodes)) {
  std::filesystem::create_directory(directory_);
  WriteConfig(nodes);
  setenv("SLURM_CONF", Path("slurm.conf").c_str(), 1);
  setenv("PATH", (std::string(std::getenv("PATH")) + ":/usr/sbin").c_str(), 1);
  StartDaemon(
      "lead", "munged",
      {"munged", "--foreground", "--force", "--socket=" + Path("munge"), "--key-file=" + Path("munge.key"),
       "--pid-file=" + Path("munge.pid"), "--log-file=" + Path("munge.out"), "--seed-file=" + Path("munge.seed")});
  OrThrow(WaitFor([&] { return std::filesystem::exists(Path("munge")); }), "munged does not start");
  StartDaemon("lead", "slurmctld", {"slurmctld", "-D"});
  for (int node = 1; node <= nodes; ++node) StartNode("n" + std::to_string(node));
  network_.GoTo("lead");
  for (int node = 1; node <= nodes; ++node) AwaitIdle("n" + std::to_string(node));
}

// Limits are those of a slow machine. What has a period of its own has a short one: how soon a job is looked at, and
// how long one that is requeued waits (cred_expire), which is also how late a node may begin it. Jobs stay known when
// they are done, for who looks late.
void SlurmCluster::WriteConfig(int nodes) const {
  std::string key;
  std::ifstream random("/dev/urandom");
  for (int i = 0; i < 128; ++i) key.push_back(static_cast<char>(random.get()));
  std::ofstream(Path("munge.key")) << key;
  std::filesystem::permissions(Path("munge.key"), std::filesystem::perms::owner_read);
  std::ofstream(Path("cgroup.conf")) << "CgroupPlugin=cgroup/v1\n";  // none is used; else slurmd looks for one
  std::ofstream config(Path("slurm.conf"));
  config << "ClusterName=test\nSlurmctldHost=lead(" << network_.Address("lead") << ")\n"
         << "SlurmUser=root\nAuthInfo=socket=" << Path("munge") << ",cred_expire=20\n"
         << "StateSaveLocation=" << Path("state") << "\nSlurmdSpoolDir=" << Path("spool.%n") << "\n"
         << "SlurmctldPidFile=" << Path("slurmctld.pid") << "\nSlurmdPidFile=" << Path("slurmd-%n.pid") << "\n"
         << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
         << "AccountingStorageType=accounting_storage/none\nMpiDefault=none\nSelectType=select/linear\n"
         << "ReturnToService=2\nKillWait=120\nSlurmdParameters=config_overrides\n"
         << "MessageTimeout=60\nBatchStartTimeout=300\nMinJobAge=86400\n"
         << "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0\n"
         << "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n";
  for (int node = 1; node <= nodes; ++node) {
    const std::string name = "n" + std::to_string(node);
    config << "NodeName=" << name << " NodeAddr=" << network_.Address(name) << " CPUs=2\n";
  }
  config << "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=600\n"
         << "PartitionName=high Nodes=ALL PriorityTier=10\n";
}

// As the first process of its host: with it all others there end, and it ends with us.
void SlurmCluster::StartDaemon(const std::string& host, const std::string& name, std::vector<std::string> command) {
  std::vector<std::string> arguments{"--pdeathsig", "KILL",         "unshare",      "--uts", "--pid",
                                     "--fork",      "--kill-child", "--mount-proc", "bash",  "-c"};
  arguments.push_back("hostname \"$0\"; \"$@\" & while wait -n; do :; done");
  arguments.push_back(host);
  arguments.insert(arguments.end(), command.begin(), command.end());
  network_.GoTo(host);
  daemons_[name] =
      std::make_unique<LoggedProcess>(arguments, directory_ + "." + name + ".log",
                                      std::vector<std::pair<std::string, std::string>>{}, "/usr/bin/setpriv");
}

void SlurmCluster::StartNode(const std::string& node) {
  std::filesystem::create_directory(Path("spool." + node));
  StartDaemon(node, node, {"slurmd", "-D", "-N", node});
}

void SlurmCluster::AwaitIdle(const std::string& node) const {
  OrThrow(
      WaitFor([&] { return Output("sinfo --noheader --partition=low --nodes=" + node + " --format=%T") == "idle\n"; }),
      node + " does not become idle");
}

std::string SlurmCluster::Output(const std::string& command) const {
  const std::string path = Path("output");
  std::remove(path.c_str());
  LoggedProcess process({"-c", command}, path, {}, "/bin/sh");
  process.ExitCode();
  return process.Log();
}

std::string SlurmCluster::Job(const std::string& job, const std::string& field) const {
  std::istringstream fields(Output("scontrol show job --oneliner " + job));
  for (std::string word; fields >> word;) {
    if (word.rfind(field + "=", 0) == 0) return word.substr(field.size() + 1);
  }
  return "";
}

bool SlurmCluster::Await(const std::string& job, const std::string& field, const std::string& value) const {
  return WaitFor([&] { return Job(job, field) == value; });
}

void SlurmCluster::Lose(const std::string& node) {
  network_.CutLink(node);
  daemons_.erase(node);
  Output("scontrol update NodeName=" + node + " State=DOWN Reason=lost");
}

void SlurmCluster::Return(const std::string& node) {
  network_.MendLink(node);
  StartNode(node);
  network_.GoTo("lead");
  AwaitIdle(node);
}

}  // namespace holdfast::chaos
