#pragma once
// What is remembered of workers that have left, by name: which processes had the name, who keeps failing, and who has
// had other bits than most too often.
//
// Thread-safety: none.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace holdfast {

/// That a majority had other bits than the workers of a name, for the next coordinator.
struct Contradictions {
  uint64_t process = 0;  // the first incarnation of the one that has the name
  bool kept_out = false;
  std::vector<std::chrono::seconds> times;  // of the last ones, since 1970; at least one
  friend bool operator==(const Contradictions&, const Contradictions&) = default;
};

class WorkerHistory {
 public:
  using Instant = std::chrono::nanoseconds;

  /// An incarnation against the process known under the name.
  enum class Kind {
    kCurrent,   // the one known
    kNewer,     // a later one of the process known, or another process: known from now on
    kOutdated,  // an earlier one of the process known
    kReplaced,  // of a process in whose place another has come
  };
  Kind Register(const std::string& name, uint64_t incarnation);

  /// A process counts up from its first incarnation, which is random.
  static bool SameProcess(uint64_t first, uint64_t incarnation);

  /// A majority had other bits, at a time since 1970. True if that is once too often within a day: whatever computes
  /// there is faulty, and is kept out until another process has the name.
  bool Contradicted(const std::string& name, std::chrono::seconds time);
  static constexpr int kMaxContradictions = 3;
  /// By name, what counts still at that time; of more than kMaxPast names those that are kept out, then the last ones.
  std::map<std::string, Contradictions> PastContradictions(std::chrono::seconds time) const;
  static constexpr size_t kMaxPast = 64;
  /// Of the coordinator before, while nothing else is known.
  void Restore(const std::map<std::string, Contradictions>& past);

  /// `lifetime`: since it was admitted to a world. Returns for how long it has to stay away; 0 = it may come back, or
  /// is kept out.
  Instant Failed(const std::string& name, Instant now, Instant lifetime);
  /// Also of who is kept out.
  bool Quarantined(const std::string& name, Instant now) const;
  bool KeptOut(const std::string& name) const;
  int64_t Failures(const std::string& name) const;

 private:
  struct Entry {
    bool known = false;
    uint64_t first = 0, last = 0;                      // incarnations of the process known
    std::deque<uint64_t> replaced;                     // first incarnations of processes before it
    int64_t failures = 0;                              // soon after being admitted, on end
    Instant until{0};                                  // in quarantine
    std::vector<std::chrono::seconds> contradictions;  // the last ones, as Contradictions::times
    bool kept_out = false;
    uint64_t used = 0;  // at which tick of clock_, last; 0 = never
  };
  Entry& Touch(const std::string& name);

  uint64_t clock_ = 0;  // one tick for each use
  std::map<std::string, Entry> entries_;
  std::map<uint64_t, std::string> by_use_;  // names, by Entry::used
};

}  // namespace holdfast
