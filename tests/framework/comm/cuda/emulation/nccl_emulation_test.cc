// The NCCL backend on GPUs that are not there (emulated_gpus.h) passes what NCCL can of the conformance suite, calls of
// two communicators at the same time included; a call that failed gives its memory back at once, or the process is told
// to end, as it is where its GPU is lost; two ranks on one GPU are refused for good.

#include "framework/comm/cuda/nccl_communicator.h"
#include "tests/framework/comm/conformance.h"
#include "tests/framework/comm/cuda/emulation/emulated_gpus.h"
#include "tests/framework/comm/memory_rendezvous.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
using Groups = std::vector<std::vector<int>>;

std::vector<int> Ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// [group][rank]
std::vector<World> Connect(int size, uint64_t generation, const Groups& groups,
                           const std::function<void(const std::string&)>& on_stuck = nullptr) {
  std::vector<World> worlds(groups.size());
  for (World& world : worlds) world.resize(static_cast<size_t>(size));
  MemoryRendezvous meeting(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto members = ConnectNccl({.device = rank, .on_stuck = on_stuck}, rank, size, generation, groups,
                                 *meeting.Member(rank), {}, Later());
      ASSERT_TRUE(members.ok()) << members.status();
      for (size_t g = 0; g < groups.size(); ++g) worlds[g][static_cast<size_t>(rank)] = std::move((*members)[g]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return worlds;
}

World MakeNcclWorld(int size, uint64_t generation) { return std::move(Connect(size, generation, {Ranks(size)})[0]); }

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorTest, testing::Values(Backend{MakeNcclWorld}));

// Two threads on each rank; the calls of the two communicators begin in whatever order.
TEST(NcclEmulationTest, TwoCommunicatorsOfAWorldWorkAtOnce) {
  std::vector<World> worlds = Connect(4, 7, {Ranks(4), {0, 2}, {1, 3}});
  std::vector<std::thread> threads;
  for (World& world : worlds) {
    threads.emplace_back([&world] {
      RunRanks(world, [](Communicator& comm) {
        for (int op = 0; op < 200 && !testing::Test::HasFatalFailure(); ++op) {
          std::mt19937 random(static_cast<unsigned>(op));
          op % 2 == 0 ? AllToAllOnce(comm, op, random) : AllGatherOnce(comm, op, random);
        }
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// While another communicator's call waits on the same GPU, so that nothing there can be freed.
TEST(NcclEmulationTest, AnAbortedCallGivesItsMemoryBackAtOnce) {
  bool stuck = false;
  std::vector<World> worlds = Connect(2, 7, {Ranks(2), Ranks(2)}, [&](const std::string&) { stuck = true; });
  std::thread other([&] { EXPECT_TRUE(worlds[1][0]->Barrier(Later()).ok()); });
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    worlds[0][0]->Abort("the world changed");
  });
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = worlds[0][0]->Barrier(Later());
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMuchSooner);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the world changed"));
  EXPECT_TRUE(absl::IsAborted(worlds[0][0]->Barrier(Later())));
  EXPECT_TRUE(worlds[1][1]->Barrier(Later()).ok());
  other.join();
  aborter.join();
  EXPECT_FALSE(stuck);
}

TEST(NcclEmulationTest, AKernelThatCannotBeEndedIsReported) {
  std::string stuck;
  World world = std::move(Connect(2, 7, {Ranks(2)}, [&](const std::string& why) { stuck = why; })[0]);
  MakeKernelsStubborn(true);
  std::byte word{};
  const absl::Status status = world[0]->Receive(1, 0, {&word, 1}, In(100));
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(stuck, HasSubstr("rank 0 of generation 7: receive from 1 with tag 0"));
  EXPECT_THAT(stuck, HasSubstr("does not release its memory"));
  MakeKernelsStubborn(false);
}

TEST(NcclEmulationTest, AGpuThatIsLostIsReported) {
  MemoryRendezvous meeting(1);
  std::string lost;
  LoseGpus(true);
  const NcclOptions options{.device = 1, .on_stuck = [&](const std::string& why) { lost = why; }};
  const absl::Status status = ConnectNccl(options, 0, 1, 7, {{0}}, *meeting.Member(0), {}, Later()).status();
  LoseGpus(false);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(lost, HasSubstr("cannot use GPU 1 any more"));
}

TEST(NcclEmulationTest, TwoRanksOnOneGpuAreRefusedForGood) {
  MemoryRendezvous meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status =
          ConnectNccl({.device = 3}, rank, 2, 7, {{0, 1}}, *meeting.Member(rank), {}, Later()).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("Duplicate GPU"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What nccl_test.cc shows on one GPU is shown of NCCL only with sends_to_self.
TEST(NcclEmulationTest, AWorldOfOneSendsOnlyWhereItIsToSendToItself) {
  for (const bool sends_to_self : {false, true}) {
    MemoryRendezvous meeting(1);
    const int before = NcclSends();
    const auto members = ConnectNccl({.sends_to_self = sends_to_self}, 0, 1, 7, {{0}}, *meeting.Member(0), {}, Later());
    ASSERT_TRUE(members.ok()) << members.status();
    std::vector<std::byte> in(9, std::byte{3}), out(9);
    const std::vector<int64_t> counts{9}, starts{0};
    EXPECT_TRUE((*members)[0]->AllGatherV(in, {Bytes(out), counts, starts}, Later()).ok());
    EXPECT_EQ(out, in);
    std::fill(out.begin(), out.end(), std::byte{});
    EXPECT_TRUE((*members)[0]->AllToAllV({in, counts, starts}, {Bytes(out), counts, starts}, Later()).ok());
    EXPECT_EQ(out, in);
    EXPECT_EQ(NcclSends() - before, sends_to_self ? 3 : 0);  // one to connect
  }
}

TEST(NcclEmulationTest, AGpuThatIsTooSmallIsRefused) {
  MemoryRendezvous meeting(1);
  const absl::Status status = ConnectNccl({}, 0, 1, 7, {{0}, {0}, {0}}, *meeting.Member(0), {}, Later()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

}  // namespace
}  // namespace holdfast
