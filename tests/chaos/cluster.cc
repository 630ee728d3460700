#include "tests/chaos/cluster.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace holdfast::chaos {
namespace {

constexpr double kStartSeconds = 30, kEndSeconds = 60;

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line, nullptr, false));
  return lines;
}

}  // namespace

Cluster::Cluster(const Stage& stage, const std::string& name, Options options)
    : stage_(stage), options_(std::move(options)), run_(stage.Path(name)) {}

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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kStartSeconds);
  while (!std::filesystem::exists(address_file)) {
    if (!coordinator_->Running() || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  options_.listen = FirstLine(address_file);
  return true;
}

void Cluster::StartAgent(const std::string& node, int workers, const std::string& host,
                         const std::vector<std::string>& overrides) {
  std::vector<std::string> arguments{"agent",         stage_.config(),
                                     "--run-dir",     run_,
                                     "--coordinator", options_.listen,
                                     "--node",        node,
                                     "--host",        host,
                                     "--workers",     std::to_string(workers),
                                     "--token-file",  run_ + "/coordinator.token"};
  const std::vector<std::string> set = Set(overrides);
  arguments.insert(arguments.end(), set.begin(), set.end());
  agents_[node] = std::make_unique<LoggedProcess>(
      arguments, run_ + ".agent_" + node + ".log",
      std::vector<std::pair<std::string, std::string>>{
          {"HOLDFAST_TEST_SLOWDOWN_MS", std::to_string(options_.slowdown_milliseconds)}});
}

void Cluster::Kill(LoggedProcess& process) {
  process.Signal(SIGKILL);
  process.Wait(10);
}

// Not before that world itself has committed: until then the state lies where the world before it had it, so a loss on
// top of the one that is being healed may be one too many.
testing::AssertionResult Cluster::GoesOn(int workers) {
  constexpr int64_t kSteps = 2;
  int64_t generation = -1, step = 0;
  bool ended = false;
  const bool stopped_waiting = WaitUntil(run_, options_.recovery_seconds, [&](const RunView& now) {
    if (ended = !coordinator_->Running(); ended) return true;
    if (!now.reachable || now.world_size != workers || now.state != "training") return false;
    if (now.generation != std::exchange(generation, now.generation)) step = now.committed_step;
    return now.committed_step >= step + kSteps;
  });
  if (stopped_waiting && !ended) return testing::AssertionSuccess();
  const RunView now = Look();
  return testing::AssertionFailure() << "does not go on: state '" << now.state << "', world of " << now.world_size
                                     << " instead of " << workers << ", step " << now.committed_step << "\n"
                                     << Logs();
}

void Cluster::StopAndCompare() {
  coordinator_->Signal(SIGTERM);
  ExpectEnd(143);
  Compare();
}

void Cluster::ExpectEnd(int exit_code) {
  EXPECT_EQ(coordinator_->Wait(kEndSeconds).value_or(-1), exit_code) << Logs();
  for (auto& [node, agent] : agents_) {
    EXPECT_EQ(agent->Wait(kEndSeconds).value_or(-1), exit_code) << "agent " << node << "\n" << Logs();
  }
  EXPECT_TRUE(ProcessesWith(run_).empty()) << "processes are left";
  EXPECT_FALSE(std::filesystem::exists(run_ + "/coordinator.address"));
}

void Cluster::Compare() const {
  EXPECT_EQ(RunBinary({"compare", stage_.undisturbed(), run_}, run_ + ".compare"), 0) << Logs();
  int64_t step = 0, generation = 0;
  for (const auto& line : Metrics()) {
    EXPECT_EQ(line.value("step", int64_t{-1}), ++step);
    EXPECT_GE(line.value("generation", int64_t{-1}), generation) << "at step " << step;
    generation = line.value("generation", int64_t{-1});
  }
  EXPECT_GT(step, 0);
  int64_t published = 0;
  for (const auto& event : Events(run_, "world_published")) {
    EXPECT_GT(event.value("generation", int64_t{-1}), published) << "a generation is used twice";
    published = event.value("generation", int64_t{-1});
  }
}

std::vector<WorkerView> Cluster::Members() const {
  std::vector<WorkerView> members;
  for (const WorkerView& worker : Look().workers) {
    if (worker.rank >= 0) members.push_back(worker);
  }
  return members;
}

std::vector<nlohmann::json> Cluster::Metrics() const { return Lines(run_ + "/metrics.jsonl"); }

std::string Cluster::Logs() const {
  std::string text = coordinator_ == nullptr ? "" : "--- coordinator\n" + coordinator_->Log();
  for (const auto& [node, agent] : agents_) text += "--- agent " + node + "\n" + agent->Log();
  return text;
}

}  // namespace holdfast::chaos
