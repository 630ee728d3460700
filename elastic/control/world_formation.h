#pragma once
// What the next world waits for and why there is to be one: when workers came, who of them brought state, since when
// there has been no world.
//
// Thread-safety: none.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace holdfast {

class WorldFormation {
 public:
  using Instant = std::chrono::nanoseconds;

  // --- workers come
  /// Returns how many have come, with this one. `with_state`: it claims some.
  int64_t OnJoin(Instant now, const std::string& name, bool with_state);
  std::optional<Instant> first_join() const { return first_join_; }
  std::optional<Instant> first_claim() const { return first_claim_; }
  Instant last_join() const { return last_join_; }
  void OnCommit() { returned_.clear(); }
  /// Since when there has been somebody who may be taken into the next world.
  std::optional<Instant> first_newcomer() const { return first_newcomer_; }
  void OnNewcomer(Instant now);

  // --- there is no world
  /// Why there is to be another one; the last sign of life of who was lost was so long ago.
  void AddReason(const std::string& reason, double detect_seconds);
  void SetReason(const std::string& reason) { reason_ = reason; }
  const std::string& reason() const { return reason_; }
  double detect_seconds() const { return detect_seconds_; }
  /// In words, for people.
  const std::string& waiting_for() const { return waiting_for_; }
  void SetWaitingFor(const std::string& what) { waiting_for_ = what; }
  Instant last_decision() const { return last_decision_; }
  void OnDecision(Instant now) { last_decision_ = now; }
  /// It was decided to wait since the last world.
  bool had_to_wait() const { return had_to_wait_; }
  void Wait() {
    had_to_wait_ = true;
    settling_since_.reset();
  }
  void StopWaiting() { had_to_wait_ = false; }
  /// There could be a world, but others may be about to come: since when that is so.
  Instant OnSettling(Instant now) { return settling_since_.emplace(settling_since_.value_or(now)); }
  /// No holder of some part of the state is there. True the first time.
  bool OnStateMissing(Instant now);
  void OnStateFound() { missing_since_.reset(); }
  /// Too few are there to go on without it.
  void OnFew(Instant now) { last_few_ = now; }
  /// From when on state that nobody has is waited for: since `since`, or what made the wait begin anew.
  Instant WaitsSince(Instant since) const { return std::max({since, last_holder_, last_few_}); }
  std::optional<Instant> missing_since() const { return missing_since_; }
  /// Too few workers are there. For how long they have been, once, when that is `limit` or more.
  std::optional<Instant> OnTooFew(Instant now, Instant limit);
  /// It has been said that they are.
  bool stands_still() const { return reported_too_few_; }

  // --- a world is published
  struct Published {
    Instant when{0};
    int64_t size = 0;
  };
  /// Nothing: there has been none.
  const std::optional<Published>& last_world() const { return last_world_; }
  /// `newcomers`: somebody who is connected is not in it.
  void OnPublished(Instant now, int64_t size, bool newcomers);

  /// The coordinator itself was away for so long, and nobody could come.
  void Forgive(Instant gap);

 private:
  std::optional<Instant> first_join_, first_claim_, first_newcomer_;
  Instant last_join_{0}, last_holder_{0}, last_few_{0}, last_decision_{0};
  // Since the last commit: names that have joined with state. Each makes the others wait anew only once: one whose
  // connection breaks again and again does not do so for ever.
  std::set<std::string> returned_;
  std::string reason_, waiting_for_;
  double detect_seconds_ = 0;
  bool had_to_wait_ = false;
  std::optional<Instant> missing_since_, too_few_since_, settling_since_;
  bool reported_too_few_ = false;
  int64_t arrivals_ = 0;
  std::optional<Published> last_world_;
};

}  // namespace holdfast
