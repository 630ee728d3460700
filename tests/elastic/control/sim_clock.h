#pragma once
// Simulated time: things to do, in order of when; and the one source of randomness of a simulation.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace holdfast::sim {

using Instant = std::chrono::nanoseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Clock {
 public:
  explicit Clock(uint64_t seed) : random_(seed) {}

  Instant now() const { return now_; }

  void After(Instant delay, std::function<void()> action) {
    queue_.push_back({now_ + delay, ++count_, std::move(action)});
    std::push_heap(queue_.begin(), queue_.end(), Later);
  }

  /// Does the next thing. False if there is none.
  bool Step() {
    if (queue_.empty()) return false;
    std::pop_heap(queue_.begin(), queue_.end(), Later);
    Item item = std::move(queue_.back());
    queue_.pop_back();
    now_ = item.when;
    item.action();
    return true;
  }

  // Written out, since the standard's distributions differ from library to library and seeds should not.
  int64_t Between(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  Instant Between(Instant low, Instant high) { return Instant(Between(low.count(), high.count())); }
  bool Chance(double probability) { return static_cast<double>(random_() >> 11) * 0x1p-53 < probability; }
  uint64_t Bits() { return random_(); }

 private:
  struct Item {
    Instant when{0};
    uint64_t order = 0;
    std::function<void()> action;
  };
  static bool Later(const Item& a, const Item& b) { return std::pair(a.when, a.order) > std::pair(b.when, b.order); }

  std::mt19937_64 random_;
  Instant now_{0};
  uint64_t count_ = 0;
  std::vector<Item> queue_;
};

}  // namespace holdfast::sim
