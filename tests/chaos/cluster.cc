#include "tests/chaos/cluster.h"

#include <filesystem>
#include <fstream>
#include <utility>

namespace holdfast::chaos {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace

Cluster::Cluster(const Stage& stage, std::string run, Options options)
    : stage_(stage), options_(std::move(options)), run_(std::move(run)) {}

std::vector<std::string> Cluster::Set(const std::vector<std::string>& more) const {
  std::vector<std::string> arguments{"--set", "elastic.workers=" + std::to_string(options_.workers)};
  for (const auto* list : {&options_.overrides, &more}) {
    for (const std::string& value : *list) arguments.insert(arguments.end(), {"--set", value});
  }
  return arguments;
}

bool Cluster::StartCoordinator(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"coordinator", stage_.config(), "--run-dir", run_, "--listen", options_.listen};
  const std::vector<std::string> set = Set({});
  arguments.insert(arguments.end(), set.begin(), set.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const std::string address_file = run_ + "/coordinator.address";
  std::remove(address_file.c_str());  // a killed one leaves it
  coordinator_ = std::make_unique<LoggedProcess>(arguments, run_ + ".coordinator.log");
  return WaitFor(*coordinator_, [&] { return !FirstLine(address_file).empty(); });
}

void Cluster::StartAgent(const std::string& node, int workers, const std::string& host,
                         const std::vector<std::string>& overrides) {
  std::vector<std::string> arguments{
      "agent",         stage_.config(),         "--run-dir",    run_,
      "--coordinator", options_.listen,         "--node",       node,
      "--workers",     std::to_string(workers), "--token-file", run_ + "/coordinator.token"};
  if (!host.empty()) arguments.insert(arguments.end(), {"--host", host});
  const std::vector<std::string> set = Set(overrides);
  arguments.insert(arguments.end(), set.begin(), set.end());
  std::vector<std::pair<std::string, std::string>> environment = options_.environment;
  environment.emplace_back("HOLDFAST_TEST_SLOWDOWN_MS", std::to_string(options_.slowdown_milliseconds));
  agents_[node] = std::make_unique<LoggedProcess>(arguments, run_ + ".agent_" + node + ".log", environment);
}

void Cluster::Kill(LoggedProcess& process) {
  process.Signal(SIGKILL);
  process.ExitCode();
}

testing::AssertionResult Cluster::GoesOn(int workers) { return chaos::GoesOn(*coordinator_, run_, workers); }

void Cluster::StopAndCompare() {
  coordinator_->Signal(SIGTERM);
  ExpectEnd(143);
  Compare();
}

void Cluster::ExpectEnd(int exit_code) {
  EXPECT_EQ(coordinator_->ExitCode(), exit_code);
  for (auto& [node, agent] : agents_) EXPECT_EQ(agent->ExitCode(), exit_code) << "agent " << node;
  EXPECT_TRUE(ProcessesWith(run_).empty()) << "processes are left";
  EXPECT_FALSE(std::filesystem::exists(run_ + "/coordinator.address"));
}

void Cluster::Compare() const {
  EXPECT_TRUE(stage_.HasUndisturbedBits(run_));
  int64_t generation = 0;
  for (const auto& line : Lines(run_ + "/metrics.jsonl")) {
    EXPECT_GE(line.value("generation", int64_t{-1}), generation) << line;
    generation = line.value("generation", int64_t{-1});
  }
  int64_t published = 0;
  for (const auto& event : Events(run_, "world_published")) {
    EXPECT_GT(event.value("generation", int64_t{-1}), published) << "a generation is used twice";
    published = event.value("generation", int64_t{-1});
  }
}

RunView Cluster::Look() {
  RunView view;
  WaitUntil(*coordinator_, run_, [&](const RunView& now) {
    view = now;
    return now.reachable;
  });
  return view;
}

std::vector<WorkerView> Cluster::Members() {
  std::vector<WorkerView> members;
  WaitUntil(*coordinator_, run_, [&](const RunView& now) {
    members.clear();
    for (const WorkerView& worker : now.workers) {
      if (worker.rank >= 0) members.push_back(worker);
    }
    return !members.empty();
  });
  return members;
}

}  // namespace holdfast::chaos
