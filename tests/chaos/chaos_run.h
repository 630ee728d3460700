#pragma once
// A run of real processes that is hurt on purpose, and the questions asked of it.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/chaos/logged_process.h"

namespace holdfast::chaos {

inline void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// A directory with a config and token files, and the undisturbed run of it.
class Stage {
 public:
  /// Makes everything in a fresh directory; the undisturbed run is `steps` long, with `settings` (a.b=c) on top of the
  /// config.
  explicit Stage(int steps, const std::vector<std::string>& settings = {});
  ~Stage();

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string config() const { return Path("config.yaml"); }
  std::string undisturbed() const { return Path("undisturbed"); }

 private:
  std::string root_;
};

struct WorkerView {
  std::string id, phase;
  int rank = -1, pid = 0;
  int64_t step = 0;
};

struct RunView {
  bool reachable = false;
  std::string state;
  int world_size = 0;
  int64_t generation = 0, committed_step = 0;
  std::vector<WorkerView> workers;
};

/// `holdfast status RUN --json`.
RunView Look(const std::string& run_directory);
/// Looks again and again until `condition` holds; false when the time is up.
bool WaitUntil(const std::string& run_directory, double timeout_seconds,
               const std::function<bool(const RunView&)>& condition);
/// Runs the binary and returns its exit code; output into `output`.
int RunBinary(const std::vector<std::string>& arguments, const std::string& log_path, double timeout_seconds = 60);

/// Lines of events.jsonl with this name.
std::vector<nlohmann::json> Events(const std::string& run_directory, const std::string& name);

/// Processes whose command line contains `text`.
std::vector<int> ProcessesWith(const std::string& text);

}  // namespace holdfast::chaos
