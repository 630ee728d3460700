// The in-process communicator passes the conformance suite, refuses strangers and old generations, and finds ranks that
// do not call the same thing. Meant to be run under the thread sanitizer too.

#include "tests/framework/comm/in_process.h"

#include "tests/framework/comm/conformance.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorTest, testing::Values(Backend{MakeInProcessWorld}));

TEST(InProcessWorldTest, RefusesStrangers) {
  InProcessWorld world(2, 5);
  auto member = world.Join(1, 5);
  ASSERT_TRUE(member.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(world.Join(0, 4).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(world.Join(0, 6).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(world.Join(2, 5).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(world.Join(-1, 5).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(world.Join(1, 5).status()));
  member->reset();
  EXPECT_TRUE(absl::IsAlreadyExists(world.Join(1, 5).status()));  // who left does not come back
  auto other = world.Join(0, 5);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(absl::IsUnavailable((*other)->Barrier(Later())));
  EXPECT_TRUE(absl::IsAborted((*other)->Barrier(Later())));
}

// Runs different calls on two ranks; what both say together.
std::string Disagree(const std::function<absl::Status(Communicator&)>& call) {
  World world = MakeInProcessWorld(2, 7);
  std::vector<absl::Status> statuses(2);
  RunRanks(world, [&](Communicator& comm) { statuses[static_cast<size_t>(comm.rank())] = call(comm); });
  EXPECT_TRUE(absl::IsInvalidArgument(statuses[0]) || absl::IsInvalidArgument(statuses[1]));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
  return statuses[0].ToString() + statuses[1].ToString();
}

TEST(InProcessWorldTest, FindsRanksThatDisagree) {
  std::vector<std::byte> memory(64);
  const auto bytes = [&](Communicator& comm, size_t n) {
    return absl::MakeSpan(memory).subspan(static_cast<size_t>(comm.rank()) * 32, n);
  };
  const std::vector<int64_t> ones = {1, 1}, twos = {2, 2}, two_one = {2, 1}, starts = {0, 2};
  const auto counts = [&](Communicator& comm) { return absl::MakeConstSpan(comm.rank() == 0 ? ones : twos); };

  EXPECT_THAT(Disagree([&](Communicator& comm) {
                return comm.rank() == 0 ? comm.Barrier(Later()) : comm.Broadcast(0, bytes(comm, 4), Later());
              }),
              HasSubstr("barrier number 0 of generation 7: rank 1 is in a broadcast"));
  EXPECT_THAT(Disagree([&](Communicator& comm) { return comm.Broadcast(comm.rank(), bytes(comm, 4), Later()); }),
              HasSubstr("rank 1 has another root"));
  EXPECT_THAT(
      Disagree([&](Communicator& comm) { return comm.Broadcast(0, bytes(comm, comm.rank() == 0 ? 4 : 5), Later()); }),
      HasSubstr("rank 1 has another root or size"));
  EXPECT_THAT(
      Disagree([&](Communicator& comm) {
        return comm.AllGatherV(bytes(comm, comm.rank() == 0 ? 1 : 2), {bytes(comm, 8), counts(comm), starts}, Later());
      }),
      HasSubstr("rank 1 has other counts"));
  EXPECT_THAT(Disagree([&](Communicator& comm) {
                return comm.AllToAllV({bytes(comm, 8), comm.rank() == 0 ? ones : two_one, starts},
                                      {bytes(comm, 8).subspan(4), ones, starts}, Later());
              }),
              HasSubstr("rank 1 sends 2 bytes to 0, which expects 1"));
  EXPECT_THAT(Disagree([&](Communicator& comm) {
                return comm.rank() == 0 ? comm.Send(1, 0, bytes(comm, 3), Later())
                                        : comm.Receive(0, 0, bytes(comm, 4), Later());
              }),
              HasSubstr("4 bytes are expected, 3 were sent"));
}

TEST(InProcessWorldTest, SendWaitsForItsReceiver) {
  World world = MakeInProcessWorld(2, 7);
  const std::vector<std::byte> data(8);
  const absl::Status status = world[0]->Send(1, 9, data, In(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("send to 1 with tag 9 waited for rank 1"));
}

}  // namespace
}  // namespace holdfast
