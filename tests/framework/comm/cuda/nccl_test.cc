// NCCL: as many ranks as this machine has GPUs (NCCL refuses two on one) gather, exchange and send device memory, by
// two communicators at the same time; a rank sends to itself, all that one GPU can show of NCCL; connecting ends at its
// deadline when somebody does not come. Skipped without a GPU. On emulated GPUs it runs anywhere.

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "framework/comm/cuda/nccl_communicator.h"
#include "tests/cuda/require_gpu.h"
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
  std::vector<unsigned char> OnCpu() const {
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
    if (cudaGetDeviceCount(&devices_) != cudaSuccess || devices_ == 0) {
      HOLDFAST_NO_GPU();
    }
  }
  int devices_ = 0;
};

std::vector<unsigned char> Filled(int64_t count, int value) {
  return std::vector<unsigned char>(static_cast<size_t>(count), static_cast<unsigned char>(value));
}

struct UnevenSlices {
  explicit UnevenSlices(int size) : counts(static_cast<size_t>(size)), starts(counts.size()) {
    for (size_t r = 0; r < counts.size(); ++r) {  // one of them empty
      counts[r] = 100'000 * (r == 1 ? 0 : static_cast<int64_t>(r) + 1);
      starts[r] = std::exchange(total, total + counts[r]);
    }
  }
  std::vector<int64_t> counts, starts;
  int64_t total = 0;
};

void ExpectFromEach(const DeviceBytes& all, const UnevenSlices& parts, int factor) {
  std::vector<unsigned char> expected;
  for (size_t r = 0; r < parts.counts.size(); ++r) {
    const auto part = Filled(parts.counts[r], factor * (static_cast<int>(r) + 1));
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(all.OnCpu() == expected);
}

void GatherAndExchange(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  const UnevenSlices parts(size);
  const int64_t mine = parts.counts[static_cast<size_t>(rank)];
  const DeviceBytes all(Filled(parts.total, 0));
  const absl::Status gathered =
      comm.AllGatherV(DeviceBytes(Filled(mine, rank + 1)).span(), {all.span(), parts.counts, parts.starts}, In(20'000));
  ASSERT_TRUE(gathered.ok()) << gathered;
  ExpectFromEach(all, parts, 1);
  // Rank r sends as much as it brought to everybody.
  std::vector<int64_t> same(parts.counts.size(), mine), starts(same.size());
  for (size_t r = 0; r < starts.size(); ++r) starts[r] = mine * static_cast<int64_t>(r);
  const DeviceBytes sent(Filled(mine * size, 2 * (rank + 1)));
  const absl::Status exchanged =
      comm.AllToAllV({sent.span(), same, starts}, {all.span(), parts.counts, parts.starts}, In(20'000));
  ASSERT_TRUE(exchanged.ok()) << exchanged;
  ExpectFromEach(all, parts, 2);
}

void UseOnce(Communicator& comm) {
  GatherAndExchange(comm);
  const int size = comm.size(), rank = comm.rank();
  EXPECT_TRUE(comm.Barrier(In(20'000)).ok());
  const DeviceBytes word(Filled(1000, rank));
  EXPECT_TRUE(comm.Broadcast(size - 1, word.span(), In(20'000)).ok());
  EXPECT_EQ(word.OnCpu(), Filled(1000, size - 1));
  if (rank == 0 && size > 1) {
    EXPECT_TRUE(comm.Send(1, 0, DeviceBytes(Filled(1000, 77)).span(), In(20'000)).ok());
  }
  if (rank == 1) {
    EXPECT_TRUE(comm.Receive(0, 0, word.span(), In(20'000)).ok());
  }
  EXPECT_EQ(word.OnCpu(), Filled(1000, rank == 1 ? 77 : size - 1));
}

// Two threads; nothing is allocated while they work.
void UseAtOnce(Communicator& a, Communicator& b) {
  constexpr int64_t kCount = 200'000;
  const std::vector<int64_t> counts(static_cast<size_t>(a.size()), kCount);
  std::vector<int64_t> starts(counts.size());
  for (size_t r = 0; r < starts.size(); ++r) starts[r] = kCount * static_cast<int64_t>(r);
  const DeviceBytes mine(Filled(kCount, a.rank() + 1));
  const DeviceBytes of_a(Filled(kCount * a.size(), 0)), of_b(Filled(kCount * a.size(), 0));
  const auto gather = [&](Communicator& comm, const DeviceBytes& all) {
    for (int i = 0; i < 30; ++i) {
      const absl::Status status = comm.AllGatherV(mine.span(), {all.span(), counts, starts}, In(20'000));
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  std::thread other([&] { gather(b, of_b); });
  gather(a, of_a);
  other.join();
  EXPECT_EQ(of_a.OnCpu(), of_b.OnCpu());
  EXPECT_EQ(of_a.OnCpu().back(), a.size());
}

void MoveAndAbort(int size, bool sends_to_self) {
  MemoryRendezvous meeting(size);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto comms = ConnectNccl({.device = rank, .sends_to_self = sends_to_self}, rank, size, 7, {ranks, ranks},
                               *meeting.Member(rank), {}, In(300'000));
      ASSERT_TRUE(comms.ok()) << comms.status();
      for (const auto& comm : *comms) UseOnce(*comm);
      UseAtOnce(*(*comms)[0], *(*comms)[1]);
      (*comms)[0]->Abort("the world changed");
      EXPECT_TRUE(absl::IsAborted((*comms)[0]->Barrier(In(20'000))));
      UseOnce(*(*comms)[1]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclTest, MovesDeviceMemoryAndEndsWhenAborted) { MoveAndAbort(devices_, false); }

TEST_F(NcclTest, ARankSendsToItself) { MoveAndAbort(1, true); }

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
        ConnectNccl({}, 0, 2, 7, {{0, 1}}, alone, stop.get_token(), In(abandon ? 300'000 : 500)).status();
    EXPECT_EQ(status.code(), abandon ? absl::StatusCode::kAborted : absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(150));
  }
}

}  // namespace
}  // namespace holdfast
