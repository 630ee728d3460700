// Staging passes the conformance suite both ways at once: the suite's CPU memory is staged through a device for a
// communicator that takes nothing else, which itself is one of CPU memory behind staging. Each side of a call is
// staged for itself.

#include "framework/parallel/staged_communicator.h"

#include "tests/framework/comm/conformance.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/parallel/device_only_communicator.h"
#include "tests/framework/train/deferred_device.h"

namespace holdfast {
namespace {

DeferredDevice& TheDevice() {
  static DeferredDevice device;
  return device;
}

World MakeWorldOfDeviceMemory(int size, uint64_t generation) {
  World world = MakeInProcessWorld(size, generation);
  for (auto& member : world) {
    member = std::make_unique<DeviceOnlyCommunicator>(ServeDevice(std::move(member), TheDevice()), TheDevice());
  }
  return world;
}

World MakeWorldStagedTwice(int size, uint64_t generation) {
  World world = MakeWorldOfDeviceMemory(size, generation);
  for (auto& member : world) member = ServeDevice(std::move(member), TheDevice());
  return world;
}

INSTANTIATE_TEST_SUITE_P(StagedTwice, CommunicatorTest, testing::Values(Backend{MakeWorldStagedTwice}));

TEST(StagedCommunicatorTest, TheFakeRefusesWhatIsNotTheDevices) {
  World world = MakeWorldOfDeviceMemory(1, 7);
  std::vector<std::byte> memory(8);
  EXPECT_TRUE(absl::IsUnimplemented(world[0]->Broadcast(0, absl::MakeSpan(memory), Later())));
}

TEST(StagedCommunicatorTest, EachSideIsStagedForItself) {
  for (const bool from_device : {false, true}) {
    World world = MakeWorldStagedTwice(2, 7);
    RunRanks(world, [&](Communicator& comm) {
      Buffer buffer = Buffer::Allocate(TheDevice(), 200, "test").value();
      std::vector<std::byte> vector(200);
      std::byte* const input = from_device ? buffer.as<std::byte>() : vector.data();
      std::byte* const output = from_device ? vector.data() : buffer.as<std::byte>();
      const std::vector<int64_t> counts = {100, 100}, starts = {0, 100};
      for (int to = 0; to < 2; ++to) {
        const auto payload = Payload(0, comm.rank(), to, 100);
        std::copy(payload.begin(), payload.end(), input + 100 * to);
      }
      const absl::Status status =
          comm.AllToAllV({{input, 200}, counts, starts}, {{output, 200}, counts, starts}, Later());
      ASSERT_TRUE(status.ok()) << status;
      for (int from = 0; from < 2; ++from) {
        const auto payload = Payload(0, from, comm.rank(), 100);
        EXPECT_TRUE(std::equal(payload.begin(), payload.end(), output + 100 * from));
      }
    });
  }
}

}  // namespace
}  // namespace holdfast
