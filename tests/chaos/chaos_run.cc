#include "tests/chaos/chaos_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

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

void Must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

}  // namespace

Stage::Stage(int steps, const std::vector<std::string>& settings) : root_(MakeRoot()) {
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
                             "train: {steps: "
                          << steps
                          << ", threads: 1, validate_every_steps: 50, validation_microbatches: 2}\n"
                             "elastic: {heartbeat_interval_ms: 50, heartbeat_timeout_ms: 1500,\n"
                             "          collective_timeout_ms: 20000, kill_timeout_ms: 40000}\n"
                             "log: {digest_every_steps: 5, sample_bytes: 0, every_steps: 50}\n";
  std::vector<std::string> train{"train", config(), "--run-dir", undisturbed()};
  for (const std::string& setting : settings) train.insert(train.end(), {"--set", setting});
  Must(RunBinary(train, Path("undisturbed.log"), 120) == 0, ReadAll(Path("undisturbed.log")));
}

Stage::~Stage() {
  if (std::getenv("HOLDFAST_CHAOS_KEEP") != nullptr) return;
  std::error_code error;
  fs::remove_all(root_, error);
}

RunView Look(const std::string& run_directory) {
  RunView view;
  const std::string path = run_directory + ".status";
  std::remove(path.c_str());
  if (RunBinary({"status", run_directory, "--json"}, path, 10) != 0) return view;
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

bool WaitUntil(const std::string& run_directory, double timeout_seconds,
               const std::function<bool(const RunView&)>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition(Look(run_directory))) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

int RunBinary(const std::vector<std::string>& arguments, const std::string& log_path, double timeout_seconds) {
  LoggedProcess process(arguments, log_path);
  return process.Wait(timeout_seconds).value_or(-1);
}

std::vector<nlohmann::json> Events(const std::string& run_directory, const std::string& name) {
  std::vector<nlohmann::json> events;
  std::ifstream file(run_directory + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto event = nlohmann::json::parse(line, nullptr, false);
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

}  // namespace holdfast::chaos
