// NCCL: as many ranks as this machine has GPUs (NCCL refuses two on one) gather and exchange device memory; connecting
// ends at its deadline when somebody does not come. Skipped without a GPU.

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "framework/comm/cuda/nccl_communicator.h"
#include "tests/framework/comm/memory_rendezvous.h"

namespace holdfast {
namespace {

using Groups = std::vector<std::vector<int>>;

Deadline In(int milliseconds) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds); }

class DeviceBytes {
 public:
  explicit DeviceBytes(const std::vector<unsigned char>& bytes) : size_(bytes.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), size_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  Bytes span() const { return {data_, size_}; }
  std::vector<unsigned char> host() const {
    std::vector<unsigned char> bytes(size_);
    EXPECT_EQ(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_;
};

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&devices_) != cudaSuccess || devices_ == 0) GTEST_SKIP() << "no GPU";
  }
  int devices_ = 0;
};

void UseOnce(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  std::vector<int64_t> counts(static_cast<size_t>(size)), starts(counts.size());
  int64_t total = 0;
  for (int r = 0; r < size; ++r) {  // uneven, one of them empty
    counts[static_cast<size_t>(r)] = 100'000 * (r == 1 ? 0 : r + 1);
    starts[static_cast<size_t>(r)] = std::exchange(total, total + counts[static_cast<size_t>(r)]);
  }
  const DeviceBytes mine(std::vector<unsigned char>(static_cast<size_t>(counts[static_cast<size_t>(rank)]),
                                                    static_cast<unsigned char>(rank + 1)));
  const DeviceBytes all(std::vector<unsigned char>(static_cast<size_t>(total)));
  const absl::Status gathered = comm.AllGatherV(mine.span(), {all.span(), counts, starts}, In(20'000));
  ASSERT_TRUE(gathered.ok()) << gathered;
  const std::vector<unsigned char> bytes = all.host();
  for (int r = 0; r < size; ++r) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) {
      ASSERT_EQ(bytes[static_cast<size_t>(starts[static_cast<size_t>(r)] + i)], r + 1);
    }
  }
  EXPECT_TRUE(comm.Barrier(In(20'000)).ok());
  EXPECT_TRUE(comm.Broadcast(0, all.span(), In(20'000)).ok());
}

TEST_F(NcclTest, MovesDeviceMemoryAndEndsWhenAborted) {
  MemoryRendezvous meeting(devices_);
  std::vector<int> ranks(static_cast<size_t>(devices_));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < devices_; ++rank) {
    threads.emplace_back([&, rank] {
      auto comms =
          ConnectNccl({.device = rank}, rank, devices_, 7, {ranks, ranks}, *meeting.Member(rank), {}, In(60'000));
      ASSERT_TRUE(comms.ok()) << comms.status();
      for (const auto& comm : *comms) UseOnce(*comm);
      (*comms)[0]->Abort("the world changed");
      EXPECT_TRUE(absl::IsAborted((*comms)[0]->Barrier(In(20'000))));
      UseOnce(*(*comms)[1]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclTest, ConnectingEndsAtItsDeadlineOrWhenAbandoned) {
  class Alone final : public Rendezvous {
    absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline) override {
      return std::vector<std::string>{mine, ""};
    }
  };
  Alone alone;
  for (const bool abandon : {false, true}) {
    std::stop_source stop;
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (abandon) stop.request_stop();
    });
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status =
        ConnectNccl({}, 0, 2, 7, {{0, 1}}, alone, stop.get_token(), In(abandon ? 60'000 : 500)).status();
    EXPECT_EQ(status.code(), abandon ? absl::StatusCode::kAborted : absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace holdfast
