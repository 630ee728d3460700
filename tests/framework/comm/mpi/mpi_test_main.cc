// The MPI communicator passes the conformance suite with a process for every rank. To be started by
// `mpirun -n 4`: every process runs all tests in the same order; rank 0 prints, the others only what fails.

#include "framework/comm/mpi/mpi_communicator.h"
#include "tests/framework/comm/conformance.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

MpiEnvironment* environment = nullptr;  // MPI is one for the process

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Ranks beyond `size` see an empty world.
World MakeMpiWorld(int size, uint64_t generation) {
  auto mine = environment->Connect(generation, {AllRanks(size)});
  EXPECT_TRUE(mine.ok()) << mine.status();
  World world(static_cast<size_t>(size));
  if (environment->rank() < size) world[static_cast<size_t>(environment->rank())] = std::move((*mine)[0]);
  return world;
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorTest,
                         testing::Values(Backend{.make = MakeMpiWorld, .size_max = 4, .one_process = false}));

TEST(MpiTest, GroupsHaveTheirOwnRanksAndFailAlone) {
  auto comms = environment->Connect(3, {AllRanks(4), {3, 1}, AllRanks(4)});
  ASSERT_TRUE(comms.ok()) << comms.status();
  const int rank = environment->rank();
  EXPECT_EQ((*comms)[1] != nullptr, rank == 1 || rank == 3);
  if (auto& pair = (*comms)[1]; pair != nullptr) {
    EXPECT_EQ(pair->rank(), rank == 3 ? 0 : 1);
    std::mt19937 random(3);
    for (int op = 0; op < 20; ++op) AllToAllOnce(*pair, op, random);
  }
  (*comms)[0]->Abort("only this one");
  std::mt19937 random(3);
  for (int op = 0; op < 20; ++op) AllToAllOnce(*(*comms)[2], op, random);
  EXPECT_THAT((*comms)[0]->Barrier(Later()).ToString(), HasSubstr("only this one"));
}

TEST(MpiTest, TagsHaveAllTheirBits) {
  World world = MakeMpiWorld(2, 3);
  RunRanks(world, [](Communicator& comm) {
    const uint32_t tags[] = {0, 0x7fffffff, 0x80000000, 0xffffffff};
    for (int i = 0; i < 4; ++i) {
      std::byte word{static_cast<unsigned char>(i)};
      if (comm.rank() == 0) {
        ASSERT_TRUE(comm.Send(1, tags[i], {&word, 1}, Later()).ok());
      } else {  // small messages wait for their receiver, so the order may be another
        ASSERT_TRUE(comm.Receive(0, tags[3 - i], {&word, 1}, Later()).ok());
        EXPECT_EQ(word, std::byte{static_cast<unsigned char>(3 - i)});
      }
    }
  });
}

TEST(MpiTest, SizesThatDisagreeAreFound) {
  for (const size_t sent : {3u, 5u}) {
    World world = MakeMpiWorld(2, 3);
    RunRanks(world, [&](Communicator& comm) {
      std::vector<std::byte> data(comm.rank() == 0 ? sent : 4);
      const absl::Status status = comm.Broadcast(0, absl::MakeSpan(data), Later());
      EXPECT_TRUE(comm.rank() == 0 || absl::IsInvalidArgument(status)) << status;
    });
  }
}

TEST(MpiTest, AMemberThatOthersDoNotConnectToGivesUp) {
  World gate = MakeMpiWorld(4, 3);  // the others come when rank 0 has waited for long
  std::atomic<int> given_up = 0;
  std::vector<int> missing;
  std::stop_source stop;
  const ConnectPatience patience{stop.get_token(), std::chrono::milliseconds(1), [&](const std::vector<int>& ranks) {
                                   missing = ranks;
                                   ++given_up;
                                 }};
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> comms;
  std::thread waits;
  if (environment->rank() == 0) {
    stop.request_stop();
    waits = std::thread([&] { comms = environment->Connect(4, {AllRanks(4)}, Deadline::max(), patience); });
    while (given_up == 0) std::this_thread::yield();
  }
  EXPECT_TRUE(gate[static_cast<size_t>(environment->rank())]->Barrier(Later()).ok());
  if (environment->rank() == 0) {
    waits.join();
  } else {
    comms = environment->Connect(4, {AllRanks(4)}, Later(), patience);
  }
  ASSERT_TRUE(comms.ok()) << comms.status();
  EXPECT_EQ(given_up, environment->rank() == 0 ? 1 : 0) << "whoever connects in time is left alone";
  EXPECT_EQ(missing, environment->rank() == 0 ? (std::vector<int>{1, 2, 3}) : std::vector<int>());
}

// A communicator of a group has ranks of its own, and MPI others.
TEST(MpiTest, WhoIsWaitedForIsNamedByItsRankInTheWorld) {
  const auto comms = environment->Connect(5, {AllRanks(4), {1, 2}}, Later(), {}, {3, 2, 1, 0});
  ASSERT_TRUE(comms.ok()) << comms.status();
  const int rank = 3 - environment->rank();
  EXPECT_EQ((*comms)[0]->rank(), rank);
  if (rank == 1) {
    std::byte word{};
    const absl::Status status = (*comms)[1]->Receive(1, 7, {&word, 1}, In(50));
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 of generation 5: receive from 2 with tag 7"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("waited for rank 2"));
    EXPECT_EQ(BlamedRanks(status), std::vector<int>{2});
  }
  EXPECT_TRUE((*comms)[0]->Barrier(Later()).ok());  // nobody leaves before
}

class PrintFailures final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "rank %d: %s: %s:%d: %s\n", environment->rank(), test == nullptr ? "" : test->name(),
                 result.file_name(), result.line_number(), result.message());
  }
};

}  // namespace

int RunMpiTests() {
  auto started = MpiEnvironment::Start();
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    return 1;
  }
  environment = started->get();
  if (environment->size() != 4) {
    std::fprintf(stderr, "to be started by mpirun -n 4\n");
    return 2;
  }
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (environment->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new PrintFailures);
  }
  const int result = RUN_ALL_TESTS();
  environment->Finish();
  return result;
}

}  // namespace holdfast

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return holdfast::RunMpiTests();
}
