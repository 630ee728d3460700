// The Gloo communicator passes the conformance suite; several of them over one exchange of addresses are independent;
// connecting can be abandoned; strangers, other generations and sizes that disagree do no harm; nothing is left behind.
// Ranks are threads; gloo_process_test.cc kills and freezes real processes.

#include <dirent.h>

#include <future>

#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/gloo/member_address.h"
#include "tests/framework/comm/conformance.h"
#include "tests/framework/comm/memory_rendezvous.h"

#ifdef __SANITIZE_THREAD__
// An encrypted pair lets go of a buffer in instrumented code; that the buffer's destructor has waited for it is in
// libgloo's, which is not.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:gloo::transport::tcp::UnboundBuffer::~UnboundBuffer";
}
#endif

namespace holdfast {
namespace {

using testing::HasSubstr;
using Groups = std::vector<std::vector<int>>;

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// [rank][group]
std::vector<World> ConnectAll(int size, uint64_t generation, const Groups& groups, bool encrypt = false) {
  MemoryRendezvous meeting(size);
  std::vector<World> worlds(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto mine = ConnectGloo({.encrypt = encrypt}, rank, size, generation, groups, *meeting.Member(rank), {}, Later());
      ASSERT_TRUE(mine.ok()) << mine.status();
      worlds[static_cast<size_t>(rank)] = std::move(*mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return worlds;
}

// The world of communicator `group`, as seen by all its members.
World Take(std::vector<World>& worlds, const Groups& groups, size_t group) {
  World world;
  for (const int rank : groups[group]) world.push_back(std::move(worlds[static_cast<size_t>(rank)][group]));
  return world;
}

template <bool encrypt = false>
World MakeGlooWorld(int size, uint64_t generation) {
  const Groups groups = {AllRanks(size)};
  auto worlds = ConnectAll(size, generation, groups, encrypt);
  return Take(worlds, groups, 0);
}

INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorTest, testing::Values(Backend{MakeGlooWorld<>}));
INSTANTIATE_TEST_SUITE_P(EncryptedGloo, CommunicatorTest, testing::Values(Backend{MakeGlooWorld<true>}));

// Rank r of a group is the r-th in its list; whoever is not listed gets nothing.
TEST(GlooTest, GroupsHaveTheirOwnRanks) {
  const Groups groups = {AllRanks(4), {3, 1}, {2}, {0, 2, 3}};
  auto worlds = ConnectAll(4, 9, groups);
  EXPECT_EQ(worlds[0][1], nullptr);
  EXPECT_EQ(worlds[1][3], nullptr);
  EXPECT_EQ(worlds[3][1]->rank(), 0);
  EXPECT_EQ(worlds[1][1]->rank(), 1);
  for (size_t g = 0; g < groups.size(); ++g) {
    World world = Take(worlds, groups, g);
    RunRanks(world, [&](Communicator& comm) {
      EXPECT_EQ(comm.size(), static_cast<int>(groups[g].size()));
      std::mt19937 random(3);
      for (int op = 0; op < 20; ++op) AllGatherOnce(comm, op, random);
    });
  }
}

TEST(GlooTest, CommunicatorsOfOneWorldFailAlone) {
  const Groups groups = {AllRanks(3), AllRanks(3), {1, 2}};
  auto worlds = ConnectAll(3, 9, groups);
  World first = Take(worlds, groups, 0), second = Take(worlds, groups, 1), third = Take(worlds, groups, 2);
  first[1]->Abort("only this one");
  first.pop_back();  // and rank 2 leaves it
  third[0].reset();
  RunRanks(second, [](Communicator& comm) {
    std::mt19937 random(3);
    for (int op = 0; op < 20; ++op) AllToAllOnce(comm, op, random);
  });
  EXPECT_THAT(first[0]->Barrier(Later()).ToString(), HasSubstr("only this one"));
  const absl::Status alone = third[1]->Barrier(Later());
  EXPECT_TRUE(absl::IsUnavailable(alone)) << alone;
  EXPECT_THAT(alone.ToString(), HasSubstr("rank 0 (in the world: 1) left"));
}

// Two threads gather and reduce at once, as the sharded engine does.
TEST(GlooTest, CommunicatorsOfOneWorldWorkAtOnce) {
  const Groups groups = {AllRanks(3), AllRanks(3)};
  auto worlds = ConnectAll(3, 9, groups);
  World a = Take(worlds, groups, 0), b = Take(worlds, groups, 1);
  const auto use = [](World& world, int first) {
    RunRanks(world, [first](Communicator& comm) {
      std::mt19937 random(5);
      for (int op = 0; op < 100; ++op) AllToAllOnce(comm, first + op, random);
    });
  };
  std::thread other([&] { use(a, 0); });
  use(b, 1000);
  other.join();
}

TEST(GlooTest, SizesThatDisagreeEndAtTheDeadline) {
  World world = MakeGlooWorld(2, 7);
  RunRanks(world, [](Communicator& comm) {
    std::vector<std::byte> data(comm.rank() == 0 ? 3000 : 1000);
    const absl::Status status = comm.Broadcast(0, absl::MakeSpan(data), In(100));
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) << status;
  });
}

// Tells its address, and then never comes.
class Stuck final : public Rendezvous {
 public:
  Stuck(std::unique_ptr<Rendezvous> inner, std::future<void> release)
      : inner_(std::move(inner)), release_(std::move(release)) {}
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override {
    inner_->Exchange(mine, deadline).IgnoreError();
    release_.wait();
    return absl::AbortedError("stuck");
  }

 private:
  std::unique_ptr<Rendezvous> inner_;
  std::future<void> release_;
};

// What ranks 0 and 1 come to while rank 2 is stuck.
std::vector<absl::Status> ConnectWithoutRank2(const std::stop_token& stop, Deadline deadline) {
  const Groups groups = {{0, 1, 2}, {0, 2}};
  MemoryRendezvous meeting(3);
  std::promise<void> release;
  Stuck stuck(meeting.Member(2), release.get_future());
  auto decoy = std::async(std::launch::async, [&] { return ConnectGloo({}, 2, 3, 5, groups, stuck, {}, Later()); });
  const auto connect = [&](int rank) {
    return ConnectGloo({}, rank, 3, 5, groups, *meeting.Member(rank), stop, deadline).status();
  };
  const auto start = std::chrono::steady_clock::now();
  auto first = std::async(std::launch::async, [&] { return connect(0); });
  auto second = std::async(std::launch::async, [&] { return connect(1); });
  std::vector<absl::Status> statuses = {first.get(), second.get()};
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMuchSooner);
  release.set_value();
  EXPECT_FALSE(decoy.get().ok());
  return statuses;
}

TEST(GlooTest, ConnectingEndsAtItsDeadline) {
  const auto is_as_meant = [](const absl::Status& status) { return BlamedRanks(status) == std::vector<int>{2}; };
  // In less time than ranks 0 and 1 need to connect, they are missing too: once more, with more time.
  for (int limit_ms = 300;; limit_ms *= 2) {
    const std::vector<absl::Status> statuses = ConnectWithoutRank2({}, In(limit_ms));
    for (const absl::Status& status : statuses) EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    if (limit_ms < 60'000 && !std::all_of(statuses.begin(), statuses.end(), is_as_meant)) continue;
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status.ToString(), HasSubstr("in generation 5: rank 2: "));
      EXPECT_EQ(BlamedRanks(status), std::vector<int>{2}) << status;
    }
    return;
  }
}

TEST(GlooTest, ConnectingEndsWhenAbandoned) {
  std::stop_source stop;
  const std::jthread abandoning([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  for (const absl::Status& status : ConnectWithoutRank2(stop.get_token(), Later())) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    // Beside rank 2 those that were not quick enough.
    EXPECT_THAT(status.ToString(), testing::ContainsRegex("in generation 5: rank ([01], )?2: abandoned"));
    EXPECT_TRUE(BlamedRanks(status).empty()) << status;
  }
}

class Blobs final : public Rendezvous {
 public:
  explicit Blobs(std::vector<std::string> others) : others_(std::move(others)) {}
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline) override {
    std::vector<std::string> all = others_;
    all.insert(all.begin(), mine);
    return all;
  }

 private:
  std::vector<std::string> others_;
};

TEST(GlooTest, RefusesNonsense) {
  const auto connect = [](const std::string& host, const Groups& groups, std::vector<std::string> others) {
    Blobs blobs(std::move(others));
    return ConnectGloo({host}, 0, 2, 5, groups, blobs, {}, Later()).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(connect("no.such.host.invalid", {{0, 1}}, {""})));
  EXPECT_TRUE(absl::IsInvalidArgument(connect("127.0.0.1", {{0, 2}}, {""})));
  EXPECT_TRUE(absl::IsInvalidArgument(connect("127.0.0.1", {{0, 0}}, {""})));
  const auto address = [](uint64_t generation) {
    MemberAddress member{.generation = generation, .key = 1, .groups = 2, .listener = {}};
    member.listener.storage.ss_family = AF_INET;
    return EncodeMemberAddress(member);
  };
  EXPECT_THAT(connect("127.0.0.1", {{0, 1}}, {"abc"}).ToString(), HasSubstr("rank 1 came to generation 5 without"));
  EXPECT_THAT(connect("127.0.0.1", {{0, 1}}, {address(5) + "x"}).ToString(), HasSubstr("without an address"));
  EXPECT_THAT(connect("127.0.0.1", {{0, 1}}, {address(6)}).ToString(), HasSubstr("with generation 6"));
  EXPECT_THAT(connect("127.0.0.1", {{0, 1}}, {address(5)}).ToString(), HasSubstr("with other groups"));
  EXPECT_FALSE(connect("127.0.0.1", {{0, 1}}, {}).ok());
}

int OpenFiles() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

int Threads() {
  int count = 0;
  DIR* directory = opendir("/proc/self/task");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(GlooTest, GenerationsLeaveNothingBehind) {
  const Groups groups = {AllRanks(3), AllRanks(3), {0, 2}};
  ConnectAll(3, 1, groups);
  const int files = OpenFiles(), threads = Threads();
  for (uint64_t generation = 2; generation < 202; ++generation) {
    auto worlds = ConnectAll(3, generation, groups);
    World world = Take(worlds, groups, 0);
    std::thread aborter([&] { world[generation % 3]->Abort("next"); });
    RunRanks(world, [](Communicator& comm) {
      while (comm.Barrier(Later()).ok()) continue;
    });
    aborter.join();
  }
  EXPECT_EQ(OpenFiles(), files);
  // The kernel lists a thread for a moment after it was joined: now, and when `threads` was counted.
  for (const Deadline limit = Later(); Threads() > threads && std::chrono::steady_clock::now() < limit;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LE(Threads(), threads);
}

}  // namespace
}  // namespace holdfast
