#pragma once
// What simulated workers wait for among themselves: holders of state to come into a world, and all members to reach a
// step. A member that dies or goes on to another world breaks what the others wait for; one that is frozen does not.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/elastic/control/sim_clock.h"
#include "tests/elastic/control/sim_truth.h"

namespace holdfast::sim {

class Collectives {
 public:
  /// ok, and if not, the ranks that are blamed.
  using Done = std::function<void(bool ok, const std::vector<int>& suspects)>;
  using IsAlive = std::function<bool(const WorkerId&)>;

  Collectives(Clock& clock, IsAlive is_alive) : clock_(clock), is_alive_(std::move(is_alive)) {}

  /// The member is in the world and serves what it holds.
  void Serve(const World& world, int rank) {
    Gathering& g = Of(world);
    g.serving.insert(rank);
    for (size_t i = 0; i < g.waiters.size(); ++i) {
      Waiter& w = g.waiters[i];
      if (w.step == 0 && w.missing.erase(rank) > 0 && w.missing.empty()) Finish(w);
    }
    Sweep(g);
  }

  void AwaitHolders(const World& world, int rank, std::set<int> holders, Done done) {
    Gathering& g = Of(world);
    for (const int holder : g.serving) holders.erase(holder);
    Add(g, {rank, 0, std::move(holders), std::move(done), false});
  }

  void AwaitAll(const World& world, int rank, int64_t step, Done done) {
    Gathering& g = Of(world);
    Add(g, {rank, step, {}, std::move(done), false});
    if (++g.arrived[step] < world.size()) return;
    for (Waiter& w : g.waiters) {
      if (w.step == step && !IsCutFromAny(g, w.rank)) Finish(w);
    }
    Sweep(g);
  }

  /// The member's deadline has passed: who is it that it waits for?
  std::vector<int> Suspects(const World& world, int rank) {
    Gathering& g = Of(world);
    std::vector<int> suspects;
    for (int other = 0; other < world.size(); ++other) {
      if (IsCut(g, rank, other)) suspects.push_back(other);
    }
    return suspects;
  }

  /// The process is gone, or has left this world for another.
  void Leave(const WorkerId& id) {
    for (auto& [generation, g] : gatherings_) {
      const int rank = g.world.RankOf(id);
      if (rank >= 0 && g.broken < 0) Break(g, rank);
    }
  }
  void Leave(const WorkerId& id, uint64_t generation) {
    const auto it = gatherings_.find(generation);
    if (it == gatherings_.end() || it->second.broken >= 0) return;
    if (const int rank = it->second.world.RankOf(id); rank >= 0) Break(it->second, rank);
  }

  void CutLink(const std::string& a, const std::string& b) { cuts_.insert({std::min(a, b), std::max(a, b)}); }
  bool IsCut(const std::string& a, const std::string& b) const {
    return cuts_.count({std::min(a, b), std::max(a, b)}) > 0;
  }
  bool IsCutFromAny(const World& world, int rank) { return !cuts_.empty() && IsCutFromAny(Of(world), rank); }
  bool has_cuts() const { return !cuts_.empty(); }
  void HealLinks() { cuts_.clear(); }

 private:
  struct Waiter {
    int rank = 0;
    int64_t step = 0;  // 0: for holders
    std::set<int> missing;
    Done done;
    bool told = false;
  };
  struct Gathering {
    World world;
    std::set<int> serving;
    std::map<int64_t, int> arrived;
    std::vector<Waiter> waiters;
    int broken = -1;
  };

  Gathering& Of(const World& world) {
    auto [it, is_new] = gatherings_.try_emplace(world.generation);
    if (is_new) {
      it->second.world = world;
      for (int rank = 0; rank < world.size(); ++rank) {
        if (!is_alive_(world.members[static_cast<size_t>(rank)].id)) it->second.broken = rank;
      }
      constexpr size_t kKept = 6;
      if (gatherings_.size() > kKept && gatherings_.begin() != it) gatherings_.erase(gatherings_.begin());
    }
    return gatherings_.at(world.generation);
  }

  void Add(Gathering& g, Waiter waiter) {
    const bool ready = waiter.step == 0 && waiter.missing.empty();
    g.waiters.push_back(std::move(waiter));
    if (ready) {
      Finish(g.waiters.back());
      Sweep(g);
    } else if (g.broken >= 0) {
      Fail(g, g.waiters.back());
    }
  }

  void Finish(Waiter& w) {
    if (w.told) return;
    w.told = true;
    clock_.After(clock_.Between(Instant(10'000), milliseconds(2)), [done = std::move(w.done)] { done(true, {}); });
  }
  void Break(Gathering& g, int rank) {
    g.broken = rank;
    for (Waiter& w : g.waiters) Fail(g, w);
  }
  void Fail(Gathering& g, Waiter& w) {
    if (w.told) return;
    w.told = true;
    std::vector<int> suspects;
    if (clock_.Chance(0.8)) suspects.push_back(g.broken);
    clock_.After(clock_.Between(milliseconds(20), milliseconds(150)),
                 [done = std::move(w.done), suspects] { done(false, suspects); });
  }
  static void Sweep(Gathering& g) {
    std::erase_if(g.waiters, [](const Waiter& w) { return w.told; });
  }

  bool IsCut(const Gathering& g, int a, int b) const {
    if (cuts_.empty()) return false;
    const std::string& x = g.world.members[static_cast<size_t>(a)].id.name;
    const std::string& y = g.world.members[static_cast<size_t>(b)].id.name;
    return IsCut(x, y);
  }
  bool IsCutFromAny(const Gathering& g, int rank) const {
    if (cuts_.empty()) return false;
    for (int other = 0; other < g.world.size(); ++other) {
      if (IsCut(g, rank, other)) return true;
    }
    return false;
  }

  Clock& clock_;
  IsAlive is_alive_;
  std::map<uint64_t, Gathering> gatherings_;
  std::set<std::pair<std::string, std::string>> cuts_;
};

}  // namespace holdfast::sim
