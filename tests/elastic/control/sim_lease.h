#pragma once
// Simulated processes that want to lead the run, and the store in which their lease lies. What they decide is decided
// by the real LeaseWatch and LeaseHolder; calls of the store take any time, arrive late, arrive without their answer
// arriving, or not at all. A process may be killed, freeze, or stand still with its machine, whose steady clock then
// stands still, too; no two clocks run alike.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/lease/lease_holder.h"
#include "elastic/lease/lease_watch.h"
#include "tests/elastic/control/sim_clock.h"
#include "tests/elastic/control/sim_truth.h"

namespace holdfast::sim {

struct LeaseBugs {
  bool store_ignores_versions = false;  // it writes whatever is asked of it
  bool takes_too_soon = false;          // one that waits does not wait for the lease
  bool counts_from_answer = false;      // a renewal counts from when its answer has come
  bool clock_stands_still = false;      // a leader counts by a clock that stops with its machine
  bool ignores_term = false;            // a leader does not look whether its lease is over
};

class Candidates {
 public:
  /// `lead`: a process that has the lease is to lead; false if it cannot.
  using Lead = std::function<bool(int seat, const LeaseSight& from)>;
  Candidates(Clock& clock, Truth& truth, int count, LeaseBugs bugs, Lead lead)
      : clock_(clock), truth_(truth), bugs_(bugs), lead_(std::move(lead)), seats_(count) {}

  void Start() {
    for (int i = 0; i < static_cast<int>(seats_.size()); ++i) {
      seats_[i].rate_millionths = clock_.Between(998'000, 1'002'000);
      seats_[i].offset = clock_.Between(Instant(0), seconds(100'000));
      StartLater(i, seconds(1));
    }
  }
  void Stop() { over_ = true; }

  // --- of the process that leads ------------------------------------------------------------------------------------
  const std::string& owner(int seat) const { return seats_[seat].text.text.owner; }
  absl::Status Check(int seat) const {
    return bugs_.ignores_term ? absl::OkStatus() : seats_[seat].holder->Check(HolderTime(seats_[seat]));
  }
  /// It has seen that it leads, and speaks: nobody else may have had the lease by the time that it looked.
  void Speaks(int seat, Instant looked) {
    const bool too_late = taken_by_ != seat && taken_ < looked && taken_ > seats_[seat].led_since;
    if (!lost_data_) truth_.Demand(!too_late, "one speaks that had lost the lease before it looked");
  }
  /// It ends, and says so if it can; and is started again.
  void Ends(int seat, bool killed) {
    Seat& s = seats_[seat];
    if (!killed) Leave(seat);
    s.is_running = s.leads = false;
    ++s.life;
    s.later.clear();
    StartLater(seat, seconds(3));
  }

  // --- faults -------------------------------------------------------------------------------------------------------
  int leader() const { return taken_by_; }
  int Any() { return static_cast<int>(clock_.Between(0, std::ssize(seats_) - 1)); }
  void Freeze(int seat, bool with_machine) {
    Seat& s = seats_[seat];
    if (s.is_frozen) return;
    s.is_frozen = true;
    s.with_machine = with_machine;
    s.frozen_since = clock_.now();
  }
  void Thaw(int seat) {
    Seat& s = seats_[seat];
    if (!s.is_frozen) return;
    if (s.with_machine) s.stood_still += clock_.now() - s.frozen_since;
    s.is_frozen = false;
    std::deque<std::function<void()>> later;
    later.swap(s.later);
    for (auto& action : later) InSeat(seat, std::move(action));
  }
  /// Something happens to the store, or on the way to it, for a while.
  void StrikeStore() {
    const Instant end = clock_.now() + clock_.Between(milliseconds(100), seconds(15));
    const int64_t kind = clock_.Between(0, 9);
    if (kind == 0) {
      entry_ = {};
      lost_data_ = true;
    } else if (kind <= 2) {
      gone_until_ = end;
    } else if (kind <= 5) {
      slow_until_ = end;
    } else {
      seats_[clock_.Chance(0.5) ? std::max(0, taken_by_) : Any()].cut_until = end;
    }
  }
  void Heal() {
    gone_until_ = slow_until_ = Instant(0);
    for (Seat& s : seats_) s.cut_until = Instant(0);
    for (int i = 0; i < static_cast<int>(seats_.size()); ++i) Thaw(i);
  }
  int64_t takes() const { return takes_; }

 private:
  static constexpr Instant kLease = seconds(5), kTimeout = seconds(2), kBeat = kLease / 5;
  struct Seat {
    int64_t life = 0, rate_millionths = 1'000'000;
    bool is_running = false, leads = false, has_led = false, is_frozen = false, with_machine = false;
    Instant offset{0}, frozen_since{0}, stood_still{0}, cut_until{0}, led_since{0};
    std::deque<std::function<void()>> later;  // while it is frozen
    std::unique_ptr<LeaseWatch> watch;
    std::unique_ptr<LeaseHolder> holder;
    LeaseSight text;  // what it writes
    uint64_t beat = 0;
  };
  template <class T>
  using Answer = std::function<void(const absl::StatusOr<T>&)>;

  Instant Local(const Seat& s, Instant time) const {
    return s.offset + Instant(static_cast<int64_t>(time / Instant(1'000'000)) * s.rate_millionths);
  }
  Instant SteadyTime(const Seat& s) const {
    const bool stands_still = s.is_frozen && s.with_machine;
    return Local(s, (stands_still ? s.frozen_since : clock_.now()) - s.stood_still);
  }
  Instant HolderTime(const Seat& s) const { return bugs_.clock_stands_still ? SteadyTime(s) : Local(s, clock_.now()); }

  void InSeat(int seat, std::function<void()> action) {
    Seat& s = seats_[seat];
    if (s.is_frozen) {
      s.later.push_back([this, seat, life = s.life, action = std::move(action)] {
        if (seats_[seat].life == life) action();
      });
    } else {
      action();
    }
  }
  void After(int seat, Instant delay, std::function<void()> action) {
    clock_.After(delay, [this, seat, life = seats_[seat].life, action = std::move(action)]() mutable {
      if (!over_ && seats_[seat].life == life) InSeat(seat, std::move(action));
    });
  }

  // --- the store ----------------------------------------------------------------------------------------------------
  bool IsReached(int seat) const { return clock_.now() >= gone_until_ && clock_.now() >= seats_[seat].cut_until; }
  Instant Delay() {
    if (clock_.now() < slow_until_) return clock_.Between(milliseconds(1), seconds(4));
    return clock_.Chance(0.02) ? clock_.Between(milliseconds(1), seconds(3))
                               : clock_.Between(milliseconds(1), milliseconds(20));
  }
  template <class T>
  void Ask(int seat, std::function<absl::StatusOr<T>()> effect, Answer<T> answer) {
    auto is_done = std::make_shared<bool>(false);
    const auto deliver = [this, seat, life = seats_[seat].life, is_done, answer](const absl::StatusOr<T>& result) {
      if (over_ || seats_[seat].life != life || std::exchange(*is_done, true)) return;
      InSeat(seat, [answer, result] { answer(result); });
    };
    clock_.After(Delay(), [this, seat, effect = std::move(effect), deliver] {
      if (over_ || !IsReached(seat)) return;
      const absl::StatusOr<T> result = effect();
      clock_.After(Delay(), [this, seat, result, deliver] {
        if (IsReached(seat)) deliver(result);
      });
    });
    clock_.After(kTimeout, [deliver] { deliver(absl::UnavailableError("timed out")); });
  }
  void Read(int seat, Answer<LeaseSight> answer) {
    Ask<LeaseSight>(
        seat, [this] { return entry_; }, std::move(answer));
  }
  // Also when the process that has asked for it has died meanwhile.
  void Replace(int seat, const std::string& version, LeaseSight text, Answer<std::string> answer) {
    Ask<std::string>(
        seat,
        [this, seat, life = seats_[seat].life, version, text]() -> absl::StatusOr<std::string> {
          if (version != entry_.version && !bugs_.store_ignores_versions) return absl::AbortedError("another version");
          if (entry_.text.owner != text.text.owner) Taken(seat, life);
          entry_ = text;
          entry_.version = absl::StrCat(++writes_);
          return entry_.version;
        },
        std::move(answer));
  }
  void Taken(int seat, int64_t life) {
    ++takes_;
    taken_ = clock_.now();
    taken_by_ = seat;
    const auto before = LeaderWords::Read(entry_.text.words);
    if (before.has_value() && before->has_left) return;
    for (const Seat& other : seats_) {
      const bool is_it = &other == &seats_[seat] && other.life == life;
      if (lost_data_ || is_it || !other.leads) continue;
      truth_.Demand(!other.holder->Check(HolderTime(other)).ok(), "two have the lease");
    }
  }

  // --- one that waits -----------------------------------------------------------------------------------------------
  void StartLater(int seat, Instant most) {
    clock_.After(clock_.Between(milliseconds(100), most), [this, seat] {
      if (!over_ && !seats_[seat].is_running) Begin(seat);
    });
  }
  void Begin(int seat) {
    Seat& s = seats_[seat];
    s.is_running = true;
    ++s.life;
    s.text = {};
    s.text.text.owner = absl::StrCat("process ", s.life, " on seat", seat, "\nmark", ++marks_, "\n");
    s.watch = std::make_unique<LeaseWatch>(bugs_.takes_too_soon ? kLease / 4 : kLease, s.text.text.owner, s.has_led);
    s.holder = std::make_unique<LeaseHolder>(kLease, "the lease", s.text.text.owner);
    InSeat(seat, [this, seat] { Look(seat); });
  }
  void LookLater(int seat) {
    After(seat, milliseconds(200), [this, seat] { Look(seat); });
  }
  void Look(int seat) {
    Read(seat, [this, seat](const absl::StatusOr<LeaseSight>& sight) {
      Seat& s = seats_[seat];
      if (!sight.ok()) {
        s.watch->CouldNotLook();
        return LookLater(seat);
      }
      LeaseSight seen = *sight;
      LeaseDecision decision = s.watch->Decide(SteadyTime(s), seen);
      if (decision.step == LeaseDecision::Step::kAsk && IsDead(seen.text.owner)) {
        seen.owner = LeaseSight::Owner::kGone;
        decision = s.watch->Decide(SteadyTime(s), seen);
      } else if (decision.step == LeaseDecision::Step::kAsk) {
        s.watch->MayLive();
      }
      if (decision.step == LeaseDecision::Step::kTake) return Take(seat, seen);
      LookLater(seat);
    });
  }
  bool IsDead(const std::string& its) const {
    for (const Seat& s : seats_) {
      if (s.is_running && s.text.text.owner == its) return false;
    }
    return true;
  }
  void Take(int seat, const LeaseSight& seen) {
    seats_[seat].holder->Takes(seen);
    Write(seat, [this, seat, seen](bool written) {
      if (!written) return LookLater(seat);
      Seat& s = seats_[seat];
      s.led_since = clock_.now();
      s.leads = true;
      if (lead_(seat, seen)) {
        s.has_led = true;
        After(seat, kBeat, [this, seat] { Beat(seat); });
      } else if (s.leads) {
        Ends(seat, /*killed=*/false);
      }
    });
  }

  // --- the one that has it ------------------------------------------------------------------------------------------
  void Write(int seat, std::function<void(bool)> then) {
    Seat& s = seats_[seat];
    s.text.text.words = LeaderWords{.beat = ++s.beat}.Line();
    const Instant asked = HolderTime(s);
    Replace(seat, s.holder->version().value_or(""), s.text,
            [this, seat, asked, then = std::move(then)](const absl::StatusOr<std::string>& version) {
              Seat& now = seats_[seat];
              now.holder->Wrote(bugs_.counts_from_answer ? HolderTime(now) : asked, version);
              then(version.ok());
            });
  }
  void Beat(int seat) {
    const auto again = [this, seat] { After(seat, kBeat, [this, seat] { Beat(seat); }); };
    const auto write = [this, seat, again] { Write(seat, [again](bool) { again(); }); };
    if (seats_[seat].holder->version().has_value()) return write();
    Read(seat, [this, seat, again, write](const absl::StatusOr<LeaseSight>& there) {
      if (!there.ok()) return again();
      seats_[seat].holder->Saw(*there);
      if (seats_[seat].holder->version().has_value()) write();
    });
  }
  void Leave(int seat) {
    Seat& s = seats_[seat];
    if (!s.holder->version().has_value()) return;
    s.text.text.words = LeaderWords{.has_left = true}.Line();
    Replace(seat, *s.holder->version(), s.text, [](const auto&) {});
  }

  Clock& clock_;
  Truth& truth_;
  const LeaseBugs bugs_;
  const Lead lead_;
  std::vector<Seat> seats_;
  LeaseSight entry_;
  int64_t writes_ = 0, marks_ = 0, takes_ = 0;
  Instant gone_until_{0}, slow_until_{0}, taken_{0};
  int taken_by_ = -1;
  bool lost_data_ = false, over_ = false;
};

}  // namespace holdfast::sim
