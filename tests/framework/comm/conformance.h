#pragma once
// What every communicator must do, whatever carries its bytes. A backend instantiates the suite with its factory:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorTest, testing::Values(Backend{MakeInProcessWorld}));
//
// Ranks run as threads of this process, or each in a process of its own that runs all tests in the same order. All
// random choices are made from the same seed on every rank, so a test is a program that all ranks execute. To be
// included by one file of a test program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "framework/comm/communicator.h"

namespace holdfast {

using World = std::vector<std::unique_ptr<Communicator>>;
/// Members by rank. Null: in another process, or nowhere.
using WorldFactory = std::function<World(int size, uint64_t generation)>;

struct Backend {
  WorldFactory make;
  int size_max = 7;
  bool one_process = true;  // all ranks are here
};

inline Deadline In(int milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}
/// For what comes soon, be the machine ever so busy; what ends before kMuchSooner has not waited for it.
inline Deadline Later() { return In(300'000); }
inline constexpr std::chrono::seconds kMuchSooner{150};

inline void RunRanks(World& world, const std::function<void(Communicator&)>& program) {
  std::vector<std::thread> threads;
  for (auto& member : world) {
    if (member != nullptr) threads.emplace_back([&] { program(*member); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The bytes rank `from` sends to rank `to` in operation `op`.
inline std::vector<std::byte> Payload(int op, int from, int to, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(op * 10007 + from * 101 + to));
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// Memory cut into parts in a random order, with gaps.
struct OwnedSlices {
  std::vector<std::byte> bytes;
  std::vector<int64_t> counts, displacements;

  OwnedSlices(std::vector<int64_t> part_counts, std::mt19937& random)
      : counts(std::move(part_counts)), displacements(counts.size()) {
    std::vector<size_t> order(counts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    int64_t end = 0;
    for (const size_t r : order) {
      displacements[r] = end + static_cast<int64_t>(random() % 5);
      end = displacements[r] + counts[r];
    }
    bytes.assign(static_cast<size_t>(end + 3), std::byte{0xee});
  }

  RankSlices<Bytes> out() { return {absl::MakeSpan(bytes), counts, displacements}; }
  RankSlices<ConstBytes> in() const { return {bytes, counts, displacements}; }
  void Set(int rank, const std::vector<std::byte>& part) {
    std::copy(part.begin(), part.end(), bytes.begin() + displacements[static_cast<size_t>(rank)]);
  }
};

class CommunicatorTest : public testing::TestWithParam<Backend> {
 protected:
  World Make(int size, uint64_t generation = 7) { return GetParam().make(size, generation); }
};

inline int64_t RandomCount(std::mt19937& random) {
  return random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % (random() % 8 == 0 ? 100'000 : 50));
}

inline void AllGatherOnce(Communicator& comm, int op, std::mt19937& random) {
  std::vector<int64_t> counts(static_cast<size_t>(comm.size()));
  for (int64_t& count : counts) count = RandomCount(random);
  OwnedSlices actual(counts, random), expected = actual;
  for (int r = 0; r < comm.size(); ++r) expected.Set(r, Payload(op, r, 0, counts[static_cast<size_t>(r)]));
  const auto mine = Payload(op, comm.rank(), 0, counts[static_cast<size_t>(comm.rank())]);
  const bool in_place = random() % 2 == 0;
  if (in_place) actual.Set(comm.rank(), mine);
  const ConstBytes own_part = actual.in()[comm.rank()];
  const absl::Status status = comm.AllGatherV(in_place ? own_part : ConstBytes(mine), actual.out(), Later());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(actual.bytes, expected.bytes);  // and nothing written into the gaps
}

inline void AllToAllOnce(Communicator& comm, int op, std::mt19937& random) {
  const auto size = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  std::vector<std::vector<int64_t>> counts(size, std::vector<int64_t>(size));  // [from][to]
  for (auto& row : counts) {
    for (int64_t& count : row) count = RandomCount(random);
  }
  std::vector<int64_t> received(size);
  for (size_t r = 0; r < size; ++r) received[r] = counts[r][me];
  std::mt19937 layout = random;  // where parts lie may differ between ranks: as random as one likes
  layout.discard(me);
  OwnedSlices input(counts[me], layout), actual(received, layout), expected = actual;
  for (int r = 0; r < comm.size(); ++r) {
    input.Set(r, Payload(op, comm.rank(), r, counts[me][static_cast<size_t>(r)]));
    expected.Set(r, Payload(op, r, comm.rank(), received[static_cast<size_t>(r)]));
  }
  const absl::Status status = comm.AllToAllV(input.in(), actual.out(), Later());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(actual.bytes, expected.bytes);
}

inline void BroadcastOnce(Communicator& comm, int op, std::mt19937& random) {
  const int root = static_cast<int>(random() % static_cast<unsigned>(comm.size()));
  const int64_t count = RandomCount(random);
  auto data = Payload(op, comm.rank(), 1, count);
  const absl::Status status = comm.Broadcast(root, absl::MakeSpan(data), Later());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(data, Payload(op, root, 1, count));
}

// One message between two ranks, the others pass.
inline void SendOnce(Communicator& comm, int op, std::mt19937& random) {
  if (comm.size() == 1) return;
  const int from = static_cast<int>(random() % static_cast<unsigned>(comm.size()));
  const int to = (from + 1 + static_cast<int>(random() % static_cast<unsigned>(comm.size() - 1))) % comm.size();
  const int64_t count = RandomCount(random);
  const auto tag = static_cast<uint32_t>(random());
  if (comm.rank() == from) {
    const absl::Status status = comm.Send(to, tag, Payload(op, from, to, count), Later());
    ASSERT_TRUE(status.ok()) << status;
  } else if (comm.rank() == to) {
    std::vector<std::byte> data(static_cast<size_t>(count));
    const absl::Status status = comm.Receive(from, tag, absl::MakeSpan(data), Later());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(data, Payload(op, from, to, count));
  }
}

TEST_P(CommunicatorTest, KnowsItsPlace) {
  World world = Make(3, 42);
  for (int r = 0; r < 3; ++r) {
    const auto& member = world[static_cast<size_t>(r)];
    if (member == nullptr) continue;
    EXPECT_EQ(member->rank(), r);
    EXPECT_EQ(member->size(), 3);
    EXPECT_EQ(member->generation(), 42u);
  }
}

TEST_P(CommunicatorTest, RandomProgramsMoveTheRightBytes) {
  for (const int size : {1, 2, 3, 4, 7}) {
    if (size > GetParam().size_max) continue;
    World world = Make(size);
    RunRanks(world, [&](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(size));
      std::mt19937 pause(static_cast<unsigned>(100 + comm.rank()));
      for (int op = 0; op < 150 && !testing::Test::HasFatalFailure(); ++op) {
        if (pause() % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(pause() % 300));
        switch (random() % 5) {
          case 0:
            AllGatherOnce(comm, op, random);
            break;
          case 1:
            AllToAllOnce(comm, op, random);
            break;
          case 2:
            BroadcastOnce(comm, op, random);
            break;
          case 3:
            SendOnce(comm, op, random);
            break;
          default:
            EXPECT_TRUE(comm.Barrier(Later()).ok());
            break;
        }
        random.seed(static_cast<unsigned>(1000 * size + op));  // the same on every rank, whatever it drew
      }
    });
  }
}

// All processes of a machine have the same steady clock.
TEST_P(CommunicatorTest, NobodyPassesABarrierEarly) {
  World world = Make(4);
  RunRanks(world, [](Communicator& comm) {
    using Time = std::chrono::steady_clock::time_point;
    std::vector<Time> arrivals(4);
    const std::vector<int64_t> counts(4, sizeof(Time));
    const std::vector<int64_t> starts = {0, sizeof(Time), 2 * sizeof(Time), 3 * sizeof(Time)};
    for (int round = 1; round <= 50; ++round) {
      if (comm.rank() == round % 4) std::this_thread::sleep_for(std::chrono::microseconds(500));
      const Time arrival = std::chrono::steady_clock::now();
      ASSERT_TRUE(comm.Barrier(Later()).ok());
      const Time left = std::chrono::steady_clock::now();
      const ConstBytes mine(reinterpret_cast<const std::byte*>(&arrival), sizeof(Time));
      const Bytes all(reinterpret_cast<std::byte*>(arrivals.data()), 4 * sizeof(Time));
      ASSERT_TRUE(comm.AllGatherV(mine, {all, counts, starts}, Later()).ok());
      EXPECT_GE(left, *std::max_element(arrivals.begin(), arrivals.end()));
    }
  });
}

// A sent message is on its way or copied when Send returns: what happens to its memory then is not seen. Two other
// ranks talk meanwhile, so that the sender is woken at every moment.
TEST_P(CommunicatorTest, ASentMessageIsNotChangedLater) {
  World world = Make(4);
  RunRanks(world, [](Communicator& comm) {
    std::byte word{};
    for (int i = 0; i < 2000 && comm.rank() >= 2; ++i) {
      ASSERT_TRUE(
          (comm.rank() == 2 ? comm.Send(3, 0, {&word, 1}, Later()) : comm.Receive(2, 0, {&word, 1}, Later())).ok());
    }
    for (int op = 0; op < 20 && comm.rank() < 2; ++op) {
      std::vector<std::byte> data = Payload(op, 0, 1, 1 << 20);
      if (comm.rank() == 0) {
        ASSERT_TRUE(comm.Send(1, 0, data, Later()).ok());
        std::fill(data.begin(), data.end(), std::byte{0});
      } else {
        std::vector<std::byte> received(data.size());
        ASSERT_TRUE(comm.Receive(0, 0, absl::MakeSpan(received), Later()).ok());
        ASSERT_TRUE(received == data) << op;
      }
    }
  });
}

// The caller may reuse or free its memory as soon as its call returns.
TEST_P(CommunicatorTest, MemoryIsFreeAfterTheCall) {
  World world = Make(3);
  RunRanks(world, [&](Communicator& comm) {
    for (int op = 0; op < 50; ++op) {
      auto mine = std::make_unique<std::vector<std::byte>>(Payload(op, comm.rank(), 0, 10'000));
      std::mt19937 random(1);
      OwnedSlices all({10'000, 10'000, 10'000}, random);
      ASSERT_TRUE(comm.AllGatherV(*mine, all.out(), Later()).ok());
      std::fill(mine->begin(), mine->end(), std::byte{0});
      mine.reset();
      for (int r = 0; r < 3; ++r) {
        const ConstBytes part = all.in()[r];
        ASSERT_EQ(std::vector<std::byte>(part.begin(), part.end()), Payload(op, r, 0, 10'000));
      }
    }
  });
}

TEST_P(CommunicatorTest, MessagesKeepTheirOrderAndFindTheirTag) {
  World world = Make(3);
  RunRanks(world, [&](Communicator& comm) {
    if (comm.rank() != 0) {
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(comm.Send(0, static_cast<uint32_t>(comm.rank()), Payload(i, comm.rank(), 0, i), Later()).ok());
      }
      return;
    }
    for (const int from : {2, 1}) {
      for (int i = 0; i < 20; ++i) {
        std::vector<std::byte> data(static_cast<size_t>(i));
        ASSERT_TRUE(comm.Receive(from, static_cast<uint32_t>(from), absl::MakeSpan(data), Later()).ok());
        EXPECT_EQ(data, Payload(i, from, 0, i));
      }
    }
  });
}

TEST_P(CommunicatorTest, AMessageWithAnotherTagIsNotReceived) {
  World world = Make(2);
  RunRanks(world, [](Communicator& comm) {
    std::vector<std::byte> data(4);
    if (comm.rank() == 0) {
      EXPECT_FALSE(comm.Receive(1, 1, absl::MakeSpan(data), In(200)).ok());
    } else {
      comm.Send(0, 2, data, In(200)).IgnoreError();  // may have been taken into a buffer
    }
  });
}

TEST_P(CommunicatorTest, TwoCommunicatorsWorkAtOnce) {
  World a = Make(3, 1), b = Make(3, 1);
  const auto use = [](World& world, int op) {
    RunRanks(world, [op](Communicator& comm) {
      std::mt19937 random(5);
      for (int i = 0; i < 100; ++i) AllGatherOnce(comm, op + i, random);
    });
  };
  std::thread other([&] { use(a, 0); });
  use(b, 1000);
  other.join();
}

TEST_P(CommunicatorTest, BadArgumentsAreRefusedAndHarmless) {
  World world = Make(2);
  RunRanks(world, [](Communicator& comm) {
    std::vector<std::byte> memory(10);
    const Bytes bytes = absl::MakeSpan(memory);
    const ConstBytes one = ConstBytes(bytes).subspan(0, 1);
    const std::vector<int64_t> ones = {1, 1}, starts = {0, 1}, three = {1, 1, 1}, beyond = {0, 10}, same = {3, 3},
                               negative = {-1, 1}, huge = {INT64_MAX, 1};
    const auto gather = [&](ConstBytes in, const std::vector<int64_t>& counts, const std::vector<int64_t>& at) {
      return absl::IsInvalidArgument(comm.AllGatherV(in, {bytes, counts, at}, Later()));
    };
    EXPECT_TRUE(gather(one, three, starts));
    EXPECT_TRUE(gather(one, ones, three));
    EXPECT_TRUE(gather(one, ones, beyond));
    EXPECT_TRUE(gather(one, ones, negative));
    EXPECT_TRUE(gather(one, ones, same));
    EXPECT_TRUE(gather(one, huge, starts));
    EXPECT_TRUE(gather(one, negative, starts));
    EXPECT_TRUE(gather(bytes, ones, starts));  // brings ten bytes for a part of one
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllToAllV({bytes, ones, beyond}, {bytes, ones, starts}, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllToAllV({bytes, ones, starts}, {bytes, ones, same}, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.Broadcast(2, bytes, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.Broadcast(-1, bytes, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.Send(comm.rank(), 0, one, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.Send(2, 0, one, Later())));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.Receive(-1, 0, bytes, Later())));
    EXPECT_TRUE(comm.Barrier(Later()).ok());
  });
}

// On every rank whether `mine` holds on any; `gate` is a world of all ranks.
inline bool HoldsAnywhere(World& gate, const std::function<bool(size_t rank)>& mine) {
  std::vector<int> anywhere(gate.size());  // by rank: those of other processes stay 0
  RunRanks(gate, [&](Communicator& comm) {
    const auto size = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
    const std::byte here{mine(me)};
    std::vector<std::byte> all(size);
    std::vector<int64_t> counts(size, 1), starts(size);
    std::iota(starts.begin(), starts.end(), int64_t{0});
    const absl::Status status = comm.AllGatherV({&here, 1}, {absl::MakeSpan(all), counts, starts}, Later());
    EXPECT_TRUE(status.ok()) << status;
    anywhere[me] = std::count(all.begin(), all.end(), std::byte{1}) > 0 ? 1 : 0;
  });
  return std::count(anywhere.begin(), anywhere.end(), 1) > 0;
}

TEST_P(CommunicatorTest, ADeadlineNamesTheRanksWaitedFor) {
  World world, gate;  // nobody leaves the world before all are through the gate
  std::vector<absl::Status> first(4), second(4);
  // Rank 0 is waited for, too, if it comes later than that: once more, with more time.
  for (int limit_ms = 100;; limit_ms *= 4) {
    world = Make(4);
    gate = Make(4, 8);
    const auto start = std::chrono::steady_clock::now();
    RunRanks(world, [&](Communicator& comm) {
      const auto r = static_cast<size_t>(comm.rank());
      if (r == 1 || r == 2) return;
      first[r] = comm.Barrier(In(limit_ms));
      second[r] = comm.Barrier(Later());
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, kMuchSooner);
    const bool was_late = HoldsAnywhere(
        gate, [&](size_t r) { return std::string(first[r].message()).find("ranks 0, 1, 2") != std::string::npos; });
    if (!was_late || limit_ms > 20'000) break;
  }
  if (GetParam().one_process) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(first[0]) || absl::IsDeadlineExceeded(first[3])) << first[0] << first[3];
  }
  for (const size_t r : {0u, 3u}) {
    if (world[r] == nullptr) continue;
    EXPECT_TRUE(absl::IsDeadlineExceeded(first[r]) || absl::IsAborted(first[r])) << first[r];
    EXPECT_THAT(std::string(first[r].message()), testing::HasSubstr("ranks 1, 2"));
    EXPECT_THAT(std::string(first[r].message()), testing::HasSubstr("generation 7"));
    EXPECT_TRUE(absl::IsAborted(second[r])) << second[r];
  }
}

TEST_P(CommunicatorTest, MessagesHaveDeadlinesToo) {
  World world = Make(2), gate = Make(2, 8);
  if (world[0] != nullptr) {
    std::vector<std::byte> data(1 << 20);
    const absl::Status received = world[0]->Receive(1, 3, absl::MakeSpan(data), In(50));
    EXPECT_TRUE(absl::IsDeadlineExceeded(received)) << received;
    EXPECT_THAT(std::string(received.message()), testing::HasSubstr("rank 1"));
  }
  RunRanks(gate, [](Communicator& comm) { EXPECT_TRUE(comm.Barrier(Later()).ok()); });  // nobody leaves before
}

TEST_P(CommunicatorTest, AbortEndsEveryWaitPromptly) {
  World world = Make(4);
  std::vector<absl::Status> statuses(4);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (world[3] == nullptr) return;
    world[3]->Abort("the world changed");
    world[3]->Abort("a later reason");
  });
  const auto start = std::chrono::steady_clock::now();
  RunRanks(world, [&](Communicator& comm) {
    std::vector<std::byte> data(8);
    absl::Status& status = statuses[static_cast<size_t>(comm.rank())];
    if (comm.rank() == 0) status = comm.Barrier(Later());
    if (comm.rank() == 1) status = comm.Receive(3, 0, absl::MakeSpan(data), Later());
    if (comm.rank() == 2) status = comm.Broadcast(1, absl::MakeSpan(data), Later());
  });
  aborter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMuchSooner);
  for (int r = 0; r < 3; ++r) {
    const absl::Status& status = statuses[static_cast<size_t>(r)];
    if (world[static_cast<size_t>(r)] == nullptr) continue;
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("the world changed"));
  }
  std::vector<std::byte> data(8);
  for (const auto& member : world) {
    if (member == nullptr) continue;
    const int other = (member->rank() + 1) % 4;
    EXPECT_TRUE(absl::IsAborted(member->Send(other, 0, data, Later())));
    EXPECT_TRUE(absl::IsAborted(member->Receive(other, 0, absl::MakeSpan(data), Later())));
    EXPECT_TRUE(absl::IsAborted(member->Barrier(Later())));
  }
}

// Aborting at any moment of a busy world: everybody comes to an end, and nothing that succeeded was wrong.
TEST_P(CommunicatorTest, AbortAtAnyMoment) {
  for (int delay = 0; delay < 40; ++delay) {
    World world = Make(3);
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(37 * delay));
      if (const auto& member = world[static_cast<size_t>(delay % 3)]; member != nullptr) member->Abort("now");
    });
    RunRanks(world, [&](Communicator& comm) {
      std::mt19937 random(1);
      OwnedSlices all({1000, 0, 3000}, random);
      for (int op = 0;; ++op) {
        const auto mine = Payload(op, comm.rank(), 0, all.counts[static_cast<size_t>(comm.rank())]);
        const absl::Status status = comm.AllGatherV(mine, all.out(), Later());
        if (!status.ok()) {
          EXPECT_TRUE(absl::IsAborted(status)) << status;
          return;
        }
        const ConstBytes last = all.in()[2];
        ASSERT_EQ(std::vector<std::byte>(last.begin(), last.end()), Payload(op, 2, 0, 3000));
      }
    });
    aborter.join();
  }
}

// Larger than what any kernel or library keeps for itself.
TEST_P(CommunicatorTest, LargeMessages) {
  World world = Make(2);
  RunRanks(world, [](Communicator& comm) {
    constexpr int64_t kCount = (int64_t{64} << 20) + 1;
    const std::vector<int64_t> counts = {kCount, kCount}, starts = {0, kCount};
    std::vector<std::byte> input(2 * kCount), output(2 * kCount);
    for (size_t i = 0; i < input.size(); i += 4096) input[i] = static_cast<std::byte>(i / 4096 + comm.rank());
    const absl::Status status =
        comm.AllToAllV({input, counts, starts}, {absl::MakeSpan(output), counts, starts}, Later());
    ASSERT_TRUE(status.ok()) << status;
    std::vector<std::byte> expected(output.size());
    const size_t mine = static_cast<size_t>(kCount * comm.rank());
    for (size_t r = 0; r < 2; ++r) {
      for (size_t source = (mine + 4095) / 4096 * 4096; source < mine + kCount; source += 4096) {
        expected[r * kCount + source - mine] = static_cast<std::byte>(source / 4096 + r);
      }
    }
    ASSERT_TRUE(output == expected);
  });
}

TEST_P(CommunicatorTest, AMemberThatLeavesIsNamed) {
  World world = Make(3);
  std::vector<absl::Status> statuses(3);
  const auto start = std::chrono::steady_clock::now();
  RunRanks(world, [&](Communicator& comm) {
    absl::Status& status = statuses[static_cast<size_t>(comm.rank())];
    status = comm.Barrier(Later());
    if (comm.rank() == 1) {
      EXPECT_TRUE(status.ok()) << status;
      world[1].reset();
      return;
    }
    // One that is slow may still wait in the first call when another one has seen rank 1 leave, and says so.
    if (status.ok()) status = comm.Barrier(Later());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMuchSooner);
  if (GetParam().one_process) {
    EXPECT_TRUE(absl::IsUnavailable(statuses[0]) || absl::IsUnavailable(statuses[2])) << statuses[0] << statuses[2];
  }
  for (const size_t r : {0u, 2u}) {
    if (world[r] == nullptr) continue;
    EXPECT_FALSE(statuses[r].ok());
    EXPECT_THAT(std::string(statuses[r].message()), testing::HasSubstr("rank 1"));
  }
}

// A rank that is done may go at once: it does not spoil the call the others are just returning from.
TEST_P(CommunicatorTest, LeavingAfterTheLastCallIsFine) {
  for (int round = 0; round < 50; ++round) {
    World world = Make(3);
    RunRanks(world, [&](Communicator& comm) {
      EXPECT_TRUE(comm.Barrier(Later()).ok());
      world[static_cast<size_t>(comm.rank())].reset();
    });
  }
}

}  // namespace holdfast
