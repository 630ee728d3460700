#include "tests/chaos/chaos_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::chaos {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string MakeRoot() {
  std::string root = fs::temp_directory_path().string() + "/holdfast_chaos_XXXXXX";
  if (mkdtemp(root.data()) == nullptr) throw std::runtime_error("no temporary directory");
  return root;
}

/// Changes when events or metrics are written.
uintmax_t Written(const std::string& run_directory) {
  std::error_code error;
  return fs::file_size(run_directory + "/events.jsonl", error) + fs::file_size(run_directory + "/metrics.jsonl", error);
}

void Must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

}  // namespace

Stage::Stage(std::vector<std::string> settings) : root_(MakeRoot()), settings_(std::move(settings)) {
  std::string text;
  for (int i = 0; text.size() < 60'000; ++i) text += "line " + std::to_string(i * i % 1009) + " of the story\n";
  std::ofstream(Path("text.txt")) << text;
  Must(RunBinary({"data", "pack", Path("text.txt"), "--out", Path("train.bin"), "--validation-fraction", "0.05",
                  "--validation-out", Path("valid.bin")},
                 Path("pack.log")) == 0,
       ReadAll(Path("pack.log")));
  std::ofstream(config()) << "model: {family: llama, vocab_size: 256, num_layers: 3, hidden_size: 48, num_heads: 4,\n"
                             "        num_kv_heads: 2, head_dim: 16, intermediate_size: 96, max_sequence_length: 32,\n"
                             "        dropout: 0.1}\n"
                             "data: {train: ["
                          << Path("train.bin") << "], validation: [" << Path("valid.bin")
                          << "]}\n"
                             "batch: {sequence_length: 32, microbatch_size: 2, microbatches: 6}\n"
                             "train: {steps: 1000000, threads: 1, validate_every_steps: 50,\n"
                             "        validation_microbatches: 2}\n"
                             "schedule: {decay_steps: 200}\n"
                             "elastic: {heartbeat_interval_ms: 50, heartbeat_timeout_ms: 3000,\n"
                             "          collective_timeout_ms: 20000, kill_timeout_ms: 40000}\n"
                             "log: {digest_every_steps: 5, sample_bytes: 0, every_steps: 50}\n";
}

Stage::~Stage() {
  if (std::getenv("HOLDFAST_CHAOS_KEEP") != nullptr) return;
  std::error_code error;
  fs::remove_all(root_, error);
}

testing::AssertionResult Stage::HasUndisturbedBits(const std::string& run) const {
  int64_t steps = 0;
  for (const nlohmann::json& line : Lines(run + "/metrics.jsonl")) {
    if (line.value("step", int64_t{-1}) != ++steps) {
      return testing::AssertionFailure() << "line " << steps << " of " << run << "/metrics.jsonl is " << line.dump();
    }
  }
  if (CommittedSteps(Path("undisturbed")) < steps) {
    std::vector<std::string> train{"train",
                                   config(),
                                   "--run-dir",
                                   Path("undisturbed"),
                                   "--overwrite",
                                   "--set",
                                   "train.steps=" + std::to_string(steps),
                                   "--set",
                                   "checkpoint.every=never"};
    for (const std::string& setting : settings_) train.insert(train.end(), {"--set", setting});
    if (RunBinary(train, Path("undisturbed.log")) != 0) {
      return testing::AssertionFailure() << ReadAll(Path("undisturbed.log"));
    }
  }
  if (RunBinary({"compare", Path("undisturbed"), run}, run + ".compare") == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << ReadAll(run + ".compare");
}

void Stage::PrintLogs(const std::string& prefix) const {
  for (const auto& entry : fs::directory_iterator(root_)) {
    const std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) == 0 && entry.path().extension() == ".log") {
      std::printf("--- %s\n%s\n", name.c_str(), ReadAll(entry.path()).c_str());
    }
  }
}

std::string StageTest::Name() {
  std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

RunView Look(const std::string& run_directory) {
  RunView view;
  const std::string path = run_directory + ".status";
  std::remove(path.c_str());
  if (RunBinary({"status", run_directory, "--json"}, path) != 0) return view;
  const auto status = nlohmann::json::parse(ReadAll(path), nullptr, false);
  if (!status.is_object() || !status.contains("workers")) return view;
  view.reachable = true;
  view.state = status["state"];
  view.world_size = status["world_size"];
  view.generation = status["generation"];
  view.committed_step = status["committed_step"];
  for (const auto& w : status["workers"]) {
    view.workers.push_back({w["id"], w["phase"], w["rank"], w["pid"], w["step"]});
  }
  return view;
}

int RunBinary(const std::vector<std::string>& arguments, const std::string& log_path) {
  return LoggedProcess(arguments, log_path).ExitCode();
}

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!file.eof()) lines.push_back(nlohmann::json::parse(line, nullptr, false));  // else it is being written
  }
  return lines;
}

int64_t CommittedSteps(const std::string& run_directory) {
  const std::string text = ReadAll(run_directory + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

std::vector<nlohmann::json> Events(const std::string& run_directory, const std::string& name) {
  std::vector<nlohmann::json> events;
  for (nlohmann::json& event : Lines(run_directory + "/events.jsonl")) {
    if (event.is_object() && event.value("event", "") == name) events.push_back(std::move(event));
  }
  return events;
}

std::vector<int> ProcessesWith(const std::string& text) {
  std::vector<int> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::string line = ReadAll(entry.path().string() + "/cmdline");
    std::replace(line.begin(), line.end(), '\0', ' ');
    if (line.find(text) != std::string::npos && std::stoi(name) != getpid()) pids.push_back(std::stoi(name));
  }
  return pids;
}

bool WaitFor(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTestTimeoutSeconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    Sleep(10);
  }
  return true;
}

bool WaitFor(LoggedProcess& process, const std::function<bool()>& condition) {
  bool holds = false;
  return WaitFor([&] {
           const bool running = process.Running();  // first: what it did last counts
           holds = condition();
           return holds || !running;
         }) &&
         holds;
}

bool WaitUntil(LoggedProcess& process, const std::string& run_directory,
               const std::function<bool(const RunView&)>& condition) {
  // A look starts a process: one when the run has written something, else every 20th time.
  uintmax_t seen = 0;
  return WaitFor(process, [&, polls = 0]() mutable {
    const uintmax_t written = Written(run_directory);
    if (written == seen && ++polls % 20 != 0 && process.Running()) return false;
    seen = written;
    return condition(Look(run_directory));
  });
}

bool WaitForStep(LoggedProcess& process, const std::string& run_directory, int64_t step) {
  return WaitFor(process, [&] { return CommittedSteps(run_directory) >= step; });
}

bool WaitForEvents(LoggedProcess& process, const std::string& run_directory, const std::string& name, size_t count) {
  return WaitFor(process, [&] { return Events(run_directory, name).size() >= count; });
}

testing::AssertionResult GoesOn(LoggedProcess& process, const std::string& run_directory, int workers) {
  constexpr int64_t kSteps = 2;
  int64_t generation = -1, step = 0;
  const auto went_on = [&](const RunView& now) {
    if (!now.reachable || now.world_size != workers || now.state != "training") return false;
    if (now.generation != std::exchange(generation, now.generation)) step = now.committed_step;
    return now.committed_step >= step + kSteps;
  };
  if (WaitUntil(process, run_directory, went_on)) return testing::AssertionSuccess();
  const RunView now = Look(run_directory);
  return testing::AssertionFailure() << "does not go on: state '" << now.state << "', world of " << now.world_size
                                     << " instead of " << workers << ", step " << now.committed_step;
}

testing::AssertionResult KillAll(LoggedProcess& process, const std::string& run_directory) {
  process.Signal(SIGKILL);
  for (const int pid : ProcessesWith(run_directory)) kill(pid, SIGKILL);
  process.ExitCode();
  if (WaitFor([&] { return ProcessesWith(run_directory).empty(); })) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "processes are left";
}

}  // namespace holdfast::chaos
