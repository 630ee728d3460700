// Real processes, killed and frozen in the middle of a stream of large all-to-alls: every survivor comes to an end and
// names the right rank; the message and the code tell an end by the event from one by the deadline. The moment differs
// from round to round; every round has a hard time limit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "framework/comm/gloo/gloo_communicator.h"
#include "tests/framework/comm/shared_rendezvous.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr int kSize = 4;
constexpr milliseconds kHardLimit{120'000};

struct Report {
  std::atomic<int> calls;  // that succeeded
  std::atomic<bool> ended;
  Clock::time_point call_began, end;  // of the last call; the same clock in all processes
  absl::StatusCode code;
  char message[700];
};

/// `kSize` processes; whoever is left is killed and reaped at the end.
class Processes {
 public:
  explicit Processes(const std::function<absl::Status(int rank, Rendezvous&, Report&)>& program)
      : reports_(Shared<Report>(kSize)), rendezvous_(kSize) {
    for (int rank = 0; rank < kSize; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) Run(rank, program);
      pids_.push_back(pid);
    }
  }

  ~Processes() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    munmap(reports_, kSize * sizeof(Report));
  }

  void Signal(int rank, int signal) { ASSERT_EQ(kill(pids_[static_cast<size_t>(rank)], signal), 0); }
  Report& report(int rank) { return reports_[rank]; }
  std::string text(int rank) { return absl::Status(reports_[rank].code, reports_[rank].message).ToString(); }
  double milliseconds_from(Clock::time_point start, int rank) {
    return std::chrono::duration<double, std::milli>(reports_[rank].end - start).count();
  }

  void WaitForCalls(int calls) {
    WaitFor([&](int rank) { return reports_[rank].calls >= calls || reports_[rank].ended; }, {0, 1, 2, 3}, "start");
  }
  bool HasAnyEnded() const {
    return std::any_of(reports_, reports_ + kSize, [](const Report& report) { return report.ended.load(); });
  }
  void WaitForEnd(const std::vector<int>& ranks) {
    WaitFor([&](int rank) { return reports_[rank].ended.load(); }, ranks, "end");
  }

 private:
  [[noreturn]] void Run(int rank, const std::function<absl::Status(int, Rendezvous&, Report&)>& program) {
    alarm(2 * kHardLimit.count() / 1000);  // should the parent be killed
    Report& report = reports_[rank];
    const absl::Status status = program(rank, *rendezvous_.Member(rank), report);
    report.end = Clock::now();
    report.code = status.code();
    std::strncpy(report.message, std::string(status.message()).c_str(), sizeof(report.message) - 1);
    report.ended = true;
    _exit(0);
  }

  void WaitFor(const std::function<bool(int)>& done, const std::vector<int>& ranks, const char* what) {
    const auto limit = Clock::now() + kHardLimit;
    for (const int rank : ranks) {
      while (!done(rank)) {
        ASSERT_LT(Clock::now(), limit) << "rank " << rank << " did not " << what;
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
  }

  Report* reports_;
  SharedRendezvous rendezvous_;
  std::vector<pid_t> pids_;
};

const std::vector<int> kAll = {0, 1, 2, 3};

absl::StatusOr<std::unique_ptr<Communicator>> Connect(int rank, Rendezvous& rendezvous, milliseconds limit) {
  auto all = ConnectGloo({}, rank, kSize, 11, {kAll, kAll}, rendezvous, {}, Clock::now() + limit);
  if (!all.ok()) return all.status();
  return std::move((*all)[0]);
}

absl::Status ExchangeForever(Communicator& comm, Report& report, milliseconds limit, int64_t count = 3 << 20) {
  const std::vector<int64_t> counts(kSize, count);
  std::vector<int64_t> starts(kSize);
  for (size_t r = 0; r < kSize; ++r) starts[r] = static_cast<int64_t>(r) * count;
  std::vector<std::byte> input(kSize * static_cast<size_t>(count)), output(input.size());
  for (;; ++report.calls) {
    report.call_began = Clock::now();
    const absl::Status status =
        comm.AllToAllV({input, counts, starts}, {absl::MakeSpan(output), counts, starts}, Clock::now() + limit);
    if (!status.ok()) return status;
  }
}

std::function<absl::Status(int, Rendezvous&, Report&)> Streaming(milliseconds limit, int64_t count = 3 << 20) {
  return [=](int rank, Rendezvous& rendezvous, Report& report) {
    auto comm = Connect(rank, rendezvous, kHardLimit);
    return comm.ok() ? ExchangeForever(**comm, report, limit, count) : comm.status();
  };
}

void PauseSomewhere(int round) { std::this_thread::sleep_for(std::chrono::microseconds(1700 * round)); }

TEST(GlooProcessTest, AKilledMemberIsNamedAtOnce) {
  double slowest = 0;
  for (int round = 0; round < 12; ++round) {
    Processes processes(Streaming(2 * kHardLimit));
    processes.WaitForCalls(2);
    PauseSomewhere(round);
    const int victim = round % kSize;
    const auto start = Clock::now();
    processes.Signal(victim, SIGKILL);
    std::vector<int> survivors = kAll;
    std::erase(survivors, victim);
    processes.WaitForEnd(survivors);
    bool found = false;
    for (const int rank : survivors) {
      EXPECT_THAT(processes.text(rank),
                  HasSubstr(absl::StrCat("rank ", victim, " closed its connections without giving a reason")));
      slowest = std::max(slowest, processes.milliseconds_from(start, rank));
      found |= processes.report(rank).code == absl::StatusCode::kUnavailable;
    }
    EXPECT_TRUE(found);
  }
  std::printf("slowest survivor after a kill: %.1f ms\n", slowest);
}

TEST(GlooProcessTest, TwoKilledMembersEndTheRestToo) {
  for (int round = 0; round < 4; ++round) {
    Processes processes(Streaming(2 * kHardLimit));
    processes.WaitForCalls(2);
    PauseSomewhere(round);
    processes.Signal(1, SIGKILL);
    processes.Signal(3, SIGKILL);
    processes.WaitForEnd({0, 2});
    for (const int rank : {0, 2}) {
      EXPECT_THAT(processes.text(rank), testing::ContainsRegex("ranks? (1|3|1, 3) closed")) << rank;
    }
  }
}

// False if the deadline was reached before rank 2 froze, or if another member, which a busy machine did not let run,
// was waited for in its place.
bool AFrozenMemberIsNamed(int round, milliseconds limit) {
  // Whoever is a call ahead and looks first also waits for those that rank 2 holds up in the call before.
  const auto names_it = testing::ContainsRegex("waited for ranks? ([0-9], )*2");
  Processes processes(Streaming(limit, 1 << 20));
  processes.WaitForCalls(2);
  PauseSomewhere(round);
  if (processes.HasAnyEnded()) return false;
  processes.Signal(2, SIGSTOP);
  processes.WaitForEnd({0, 1, 3});
  bool found = false;
  Clock::time_point first_deadline = Clock::time_point::max();
  for (const int rank : {0, 1, 3}) {
    first_deadline = std::min(first_deadline, processes.report(rank).call_began + limit);
  }
  for (const int rank : {0, 1, 3}) {
    if (!testing::Matches(names_it)(processes.text(rank))) return false;
    EXPECT_GE(processes.report(rank).end, first_deadline);
    found |= processes.report(rank).code == absl::StatusCode::kDeadlineExceeded;
  }
  EXPECT_TRUE(found);
  // Awake again, it learns what has become of it.
  processes.Signal(2, SIGCONT);
  processes.WaitForEnd({2});
  EXPECT_EQ(processes.report(2).code, absl::StatusCode::kAborted) << processes.text(2);
  EXPECT_THAT(processes.text(2), names_it);
  return true;
}

TEST(GlooProcessTest, AFrozenMemberIsNamedAtTheDeadline) {
  for (int round = 0; round < 3; ++round) {
    milliseconds limit{2000};  // much longer than a call takes
    while (!AFrozenMemberIsNamed(round, limit)) {
      limit *= 4;
      ASSERT_LT(limit, kHardLimit) << "rank 2 is not named";
    }
  }
}

// The coordinator's word comes long before the deadline.
TEST(GlooProcessTest, AbortEndsTheWaitForAFrozenMember) {
  std::atomic<bool>* abort = Shared<std::atomic<bool>>();
  Processes processes([&](int rank, Rendezvous& rendezvous, Report& report) -> absl::Status {
    auto comm = Connect(rank, rendezvous, kHardLimit);
    if (!comm.ok()) return comm.status();
    const std::jthread aborter([&, rank](const std::stop_token& stop) {
      while (rank == 0 && !stop.stop_requested() && !*abort) std::this_thread::sleep_for(milliseconds(1));
      if (rank == 0 && !stop.stop_requested()) (*comm)->Abort("the world changed");
    });
    return ExchangeForever(**comm, report, 2 * kHardLimit);
  });
  processes.WaitForCalls(2);
  processes.Signal(2, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(200));
  const auto start = Clock::now();
  *abort = true;
  processes.WaitForEnd({0, 1, 3});
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(processes.report(rank).code, absl::StatusCode::kAborted);
    EXPECT_THAT(processes.text(rank), HasSubstr("the world changed"));
    std::printf("rank %d ended %.1f ms after the abort\n", rank, processes.milliseconds_from(start, rank));
  }
}

// One dies between telling its address and connecting.
TEST(GlooProcessTest, AMemberKilledWhileConnecting) {
  class Deadly final : public Rendezvous {
   public:
    explicit Deadly(Rendezvous& inner) : inner_(inner) {}
    absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override {
      inner_.Exchange(mine, deadline).IgnoreError();
      raise(SIGKILL);
      return absl::InternalError("alive");
    }

   private:
    Rendezvous& inner_;
  };
  Processes processes([](int rank, Rendezvous& rendezvous, Report&) {
    Deadly deadly(rendezvous);
    return Connect(rank, rank == 1 ? deadly : rendezvous, milliseconds(1000)).status();
  });
  processes.WaitForEnd({0, 2, 3});
  for (const int rank : {0, 2, 3}) {
    EXPECT_NE(processes.report(rank).code, absl::StatusCode::kOk);
  }
}

}  // namespace
}  // namespace holdfast
