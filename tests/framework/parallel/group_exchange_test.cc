// Proves that rows reach the ranks that they are for, in order, whoever sends how many, none included; and that an
// exchange ends with a stop, an abort or a rank that is gone; that what is begun goes on beside its pass, in order, and
// ends with it. Ranks are threads.

#include "framework/parallel/group_exchange.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kExchangeTimeout{300'000};
constexpr int64_t kCols = 3;

using Numbers = std::vector<int64_t>;

/// Expert e is with rank e % size; token t of rank r is row {r, t, expert}.
int64_t RowsFor(unsigned seed, int from, int expert) {
  std::mt19937 random(seed * 1009 + static_cast<unsigned>(from * 31 + expert));
  return static_cast<int64_t>(random() % 4) * static_cast<int64_t>(random() % 2);
}

Numbers ExpertsOf(int rank, int size, int experts) {
  Numbers of_rank;
  for (int e = rank; e < experts; e += size) of_rank.push_back(e);
  return of_rank;
}

Numbers StartsOf(const Numbers& counts) {
  Numbers starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), int64_t{0});
  return starts;
}

/// Sends rows to experts and brings each back, with 0.5 added by the rank that has the expert.
void ThereAndBack(Exchange& exchange, int experts, unsigned seed) {
  const int size = exchange.size(), me = exchange.rank();
  Numbers counts, per_rank, sent;
  std::vector<float> rows;
  for (int r = 0; r < size; ++r) {
    per_rank.push_back(static_cast<int64_t>(ExpertsOf(r, size, experts).size()));
    sent.push_back(0);
    for (const int64_t e : ExpertsOf(r, size, experts)) {
      counts.push_back(RowsFor(seed, me, static_cast<int>(e)));
      sent.back() += counts.back();
      for (int64_t t = 0; t < counts.back(); ++t) {
        rows.insert(rows.end(), {static_cast<float>(me), static_cast<float>(t), static_cast<float>(e)});
      }
    }
  }
  const auto from = exchange.AllToAllCounts(counts, per_rank);
  ASSERT_TRUE(from.ok()) << from.status();
  const Numbers mine = ExpertsOf(me, size, experts);
  Numbers received;
  std::vector<float> expected;
  for (int r = 0; r < size; ++r) {
    received.push_back(0);
    for (size_t i = 0; i < mine.size(); ++i) {
      const int64_t count = (*from)[static_cast<size_t>(r) * mine.size() + i];
      EXPECT_EQ(count, RowsFor(seed, r, static_cast<int>(mine[i])));
      received.back() += count;
      for (int64_t t = 0; t < count; ++t) {
        expected.insert(expected.end(), {static_cast<float>(r), static_cast<float>(t), static_cast<float>(mine[i])});
      }
    }
  }
  std::vector<float> here(expected.size()), back(rows.size());
  constexpr int64_t kRowBytes = kCols * sizeof(float);
  const Numbers places = StartsOf(sent), places_here = StartsOf(received);
  ASSERT_TRUE(exchange.AllToAllRows({rows.data(), sent, places}, {here.data(), received, places_here}, kRowBytes).ok());
  EXPECT_EQ(here, expected);
  for (float& value : here) value += 0.5f;
  ASSERT_TRUE(exchange.AllToAllRows({here.data(), received, places_here}, {back.data(), sent, places}, kRowBytes).ok());
  for (float& value : rows) value += 0.5f;
  EXPECT_EQ(back, rows);
}

class GroupExchangeTest : public testing::Test {
 protected:
  std::unique_ptr<GroupExchange> Over(Communicator& communicator, const std::vector<int>& nodes, Stream& stream) {
    return GroupExchange::Create(communicator, nodes, *device_, stream, progress_, kExchangeTimeout).value();
  }

  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  StepProgress progress_;
  const std::vector<int> nodes_ = std::vector<int>(5);
};

TEST_F(GroupExchangeTest, CountsBytesInANodeAndBetweenNodes) {
  const std::vector<int> nodes{0, 1, 0};
  auto communicators = MakeInProcessWorld(3, 1);
  std::vector<std::thread> threads;
  std::vector<ExchangedBytes> bytes(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto stream = device_->CreateStream().value();
      const auto exchange = Over(*communicators[static_cast<size_t>(rank)], nodes, *stream);
      exchange->BeginStep({});
      EXPECT_TRUE(exchange->AllToAllCounts({1, 2, 3, 4}, {2, 1, 1}).ok());
      bytes[static_cast<size_t>(rank)] = exchange->bytes();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bytes[0].in_node, 8);
  EXPECT_EQ(bytes[0].between_nodes, 8);
  EXPECT_EQ(bytes[1].in_node, 0);
  EXPECT_EQ(bytes[1].between_nodes, 24);
  EXPECT_EQ(bytes[2].in_node, 16);
  EXPECT_EQ(bytes[2].between_nodes, 8);
}

TEST_F(GroupExchangeTest, RowsGoThereAndBack) {
  for (const int size : {1, 2, 3, 5}) {
    auto communicators = MakeInProcessWorld(size, 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto stream = device_->CreateStream().value();
        const auto exchange = Over(*communicators[static_cast<size_t>(rank)], nodes_, *stream);
        exchange->BeginStep({});
        for (unsigned seed = 0; seed < 8; ++seed) {
          for (const int experts : {1, 4, 7}) ThereAndBack(*exchange, experts, seed);  // fewer than ranks, too
        }
        ASSERT_TRUE(communicators[static_cast<size_t>(rank)]
                        ->Barrier(std::chrono::steady_clock::now() + kExchangeTimeout)
                        .ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_FALSE(progress_.waiting);
  EXPECT_GT(progress_.count, 0u);
}

TEST_F(GroupExchangeTest, OfOneRankNeedsNoCommunicator) {
  const auto stream = device_->CreateStream().value();
  LocalExchange exchange(stream->ops());
  for (unsigned seed = 0; seed < 8; ++seed) ThereAndBack(exchange, 4, seed);
}

TEST_F(GroupExchangeTest, EndsWithAStopAnAbortOrALostRank) {
  const auto stream = device_->CreateStream().value();
  for (const bool lost : {false, true}) {
    auto communicators = MakeInProcessWorld(2, 1);
    const std::unique_ptr<GroupExchange> created = Over(*communicators[0], nodes_, *stream);
    GroupExchange& exchange = *created;
    std::stop_source stop;
    stop.request_stop();
    exchange.BeginStep(stop.get_token());
    EXPECT_EQ(exchange.AllToAllCounts({1, 2}, {1, 1}).status().code(), absl::StatusCode::kCancelled);
    exchange.BeginStep({});
    const Numbers none{0, 0}, negative{-1, 0};
    EXPECT_EQ(exchange.AllToAllRows({nullptr, negative, none}, {nullptr, none, none}, 4).code(),
              absl::StatusCode::kInvalidArgument);
    std::jthread ending([&] { lost ? communicators[1].reset() : exchange.Abort("a test"); });
    EXPECT_FALSE(exchange.AllToAllCounts({1, 2}, {1, 1}).ok());
    EXPECT_FALSE(exchange.AllToAllRows({nullptr, none, none}, {nullptr, none, none}, 4).ok());
  }
}

TEST_F(GroupExchangeTest, RunsWhatIsBegunBesideThePass) {
  auto communicators = MakeInProcessWorld(2, 1);
  std::promise<void> begun;  // by rank 0: only then rank 1 begins its own
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto stream = device_->CreateStream().value();
      const auto exchange = Over(*communicators[static_cast<size_t>(rank)], nodes_, *stream);
      exchange->BeginStep({});
      if (rank == 1) begun.get_future().wait();
      // In each of three works a row goes to the other rank, which has copied what came in the one before to there.
      const Numbers counts = rank == 0 ? Numbers{0, 1} : Numbers{1, 0}, none{0, 0};
      std::vector<float> row(4, static_cast<float>(rank)), came(4);
      int64_t last = 0;
      for (int i = 0; i < 3; ++i) {
        last = exchange->Begin([&](kernels::Ops& ops) -> absl::Status {
          const absl::Status status =
              exchange->AllToAllRows({row.data(), counts, none}, {came.data(), counts, none}, 16);
          ops.Copy(row.data(), came.data(), 16);
          return status;
        });
        EXPECT_EQ(last, i + 1);
      }
      if (rank == 0) begun.set_value();
      EXPECT_TRUE(exchange->Wait(1).ok());
      EXPECT_TRUE(exchange->Wait(last).ok());
      EXPECT_EQ(row, std::vector<float>(4, static_cast<float>(1 - rank)));
      EXPECT_EQ(exchange->bytes().in_node, 3 * 16);
      ThereAndBack(*exchange, 3, 1);  // the pass makes exchanges again
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GroupExchangeTest, NothingIsDoneAfterAWorkThatFailed) {
  auto communicators = MakeInProcessWorld(2, 1);
  const auto stream = device_->CreateStream().value();
  const auto exchange = Over(*communicators[0], nodes_, *stream);
  exchange->BeginStep({});
  bool done = false;
  exchange->Begin([](kernels::Ops&) { return absl::DataLossError("a test"); });
  const int64_t second = exchange->Begin([&](kernels::Ops&) {
    done = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(exchange->Wait(second).code(), absl::StatusCode::kDataLoss);
  exchange->Abandon();
  EXPECT_FALSE(done);
}

TEST_F(GroupExchangeTest, WhatIsUnderWayEndsWhenItsPassHasFailed) {
  auto communicators = MakeInProcessWorld(2, 1);
  const auto stream = device_->CreateStream().value();
  const auto exchange = Over(*communicators[0], nodes_, *stream);
  exchange->BeginStep({});
  absl::Status ended;
  exchange->Begin([&](kernels::Ops&) {
    const Numbers none{0, 0};
    ended = exchange->AllToAllRows({nullptr, none, none}, {nullptr, none, none}, 4);  // rank 1 makes none
    return ended;
  });
  exchange->Abandon();
  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted) << ended;
}

}  // namespace
}  // namespace holdfast
