#include "elastic/control/worker_history.h"

#include <algorithm>
#include <utility>

#include "framework/base/limits.h"

namespace holdfast {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr size_t kMaxNames = 2 * kMaxWorkers;
constexpr size_t kMaxReplaced = 16;
constexpr uint64_t kIncarnations = 1 << 20;  // of one process
constexpr seconds kSoon{10};
constexpr int64_t kTolerated = 2;
constexpr seconds kFirstWait{2}, kLongestWait{60};
constexpr hours kOneDay{24};

}  // namespace

bool WorkerHistory::SameProcess(uint64_t first, uint64_t incarnation) { return incarnation - first < kIncarnations; }

// Bounded: the name not used for longest is forgotten.
WorkerHistory::Entry& WorkerHistory::Touch(const std::string& name) {
  auto it = entries_.find(name);
  if (it == entries_.end()) {
    if (entries_.size() >= kMaxNames) {
      entries_.erase(by_use_.begin()->second);
      by_use_.erase(by_use_.begin());
    }
    it = entries_.emplace(name, Entry{}).first;
  }
  by_use_.erase(it->second.used);
  it->second.used = ++clock_;
  by_use_.emplace(clock_, name);
  return it->second;
}

WorkerHistory::Kind WorkerHistory::Register(const std::string& name, uint64_t incarnation) {
  Entry& entry = Touch(name);
  if (entry.known && SameProcess(entry.first, incarnation)) {
    if (incarnation < entry.last) return Kind::kOutdated;
    const bool current = incarnation == entry.last;
    entry.last = incarnation;
    return current ? Kind::kCurrent : Kind::kNewer;
  }
  for (const uint64_t first : entry.replaced) {
    if (SameProcess(first, incarnation)) return Kind::kReplaced;
  }
  if (entry.known) entry.replaced.push_back(entry.first);
  if (entry.replaced.size() > kMaxReplaced) entry.replaced.pop_front();
  entry.known = true;
  entry.first = entry.last = incarnation;
  entry.kept_out = false;
  return Kind::kNewer;
}

bool WorkerHistory::Contradicted(const std::string& name, seconds time) {
  Entry& entry = Touch(name);
  auto& times = entry.contradictions;
  for (seconds& before : times) before = std::min(before, time);  // the clock may have been put back
  times.push_back(time);
  while (times.size() > kMaxContradictions) times.erase(times.begin());
  entry.kept_out = times.size() == kMaxContradictions && time - times.front() < kOneDay;
  return entry.kept_out;
}

std::map<std::string, Contradictions> WorkerHistory::PastContradictions(seconds time) const {
  std::vector<const std::pair<const std::string, Entry>*> counting;
  for (const auto& named : entries_) {
    const Entry& entry = named.second;
    if (entry.kept_out || (!entry.contradictions.empty() && time - entry.contradictions.back() < kOneDay)) {
      counting.push_back(&named);
    }
  }
  const auto weight = [](const auto* named) {
    return std::pair(named->second.kept_out, named->second.contradictions.back());
  };
  std::stable_sort(counting.begin(), counting.end(),
                   [&](const auto* a, const auto* b) { return weight(a) > weight(b); });
  if (counting.size() > kMaxPast) counting.resize(kMaxPast);
  std::map<std::string, Contradictions> past;
  for (const auto* named : counting) {
    const Entry& entry = named->second;
    past[named->first] = {.process = entry.first, .kept_out = entry.kept_out, .times = entry.contradictions};
  }
  return past;
}

void WorkerHistory::Restore(const std::map<std::string, Contradictions>& past) {
  for (const auto& [name, contradictions] : past) {
    Entry& entry = Touch(name);
    entry.known = true;
    entry.first = entry.last = contradictions.process;
    entry.contradictions = contradictions.times;
    entry.kept_out = contradictions.kept_out;
  }
}

WorkerHistory::Instant WorkerHistory::Failed(const std::string& name, Instant now, Instant lifetime) {
  Entry& entry = Touch(name);
  entry.failures = lifetime < kSoon ? entry.failures + 1 : 0;
  if (entry.failures <= kTolerated || entry.kept_out) return Instant{0};
  const int64_t doublings = std::min<int64_t>(entry.failures - kTolerated - 1, 16);
  const Instant wait = std::min<Instant>(kFirstWait * (int64_t{1} << doublings), kLongestWait);
  entry.until = now + wait;
  return wait;
}

bool WorkerHistory::Quarantined(const std::string& name, Instant now) const {
  const auto it = entries_.find(name);
  return it != entries_.end() && (it->second.kept_out || now < it->second.until);
}

bool WorkerHistory::KeptOut(const std::string& name) const {
  const auto it = entries_.find(name);
  return it != entries_.end() && it->second.kept_out;
}

int64_t WorkerHistory::Failures(const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? 0 : it->second.failures;
}

}  // namespace holdfast
