// Proves that statistics of a step are the same bits on every rank and in every world, however its microbatches are
// spread: ranks are threads, and every world is compared with a sum written out here.

#include "framework/parallel/statistics_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <thread>

#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

constexpr int64_t kItems = 7, kExperts = 3;
constexpr std::chrono::milliseconds kTimeout{300'000};

const StatisticsLayout& Layout() {
  static const StatisticsLayout layout{{{.name = "loss", .combine = Combine::kSum},
                                        {.name = "load", .combine = Combine::kCount, .size = kExperts},
                                        {.name = "entropy", .combine = Combine::kMean, .size = 2},
                                        {.name = "in_order", .combine = Combine::kInOrder}}};
  return layout;
}

/// So that another order of sums is another sum.
double ValueOf(int64_t item, int64_t which) {
  constexpr double kValues[] = {0.1, 1e16, 0.7, 3.3, -1e16, 1e8, -0.9};
  return kValues[item] * static_cast<double>(1 + which);
}

int64_t LoadOf(int64_t item, int64_t expert) { return (int64_t{1} << 53) * (expert - 1) + item * 100 + expert; }

/// In another order than 0, 1, 2, ...: `items` are in the order in which the rank computed them.
ItemStatistics SourceOf(std::vector<std::vector<int64_t>> items, int rank) {
  ItemStatistics source{.layout = &Layout(), .items = std::move(items), .values = {}};
  for (const int64_t item : source.items[static_cast<size_t>(rank)]) {
    source.values.push_back(std::bit_cast<uint64_t>(ValueOf(item, 0)));
    for (int64_t e = 0; e < kExperts; ++e) source.values.push_back(std::bit_cast<uint64_t>(LoadOf(item, e)));
    for (int64_t i = 1; i <= 3; ++i) source.values.push_back(std::bit_cast<uint64_t>(ValueOf(item, i)));
  }
  return source;
}

double Tree(int64_t which) {
  const auto v = [&](int64_t item) { return ValueOf(item, which); };
  return ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + v(6));
}

double InOrder(int64_t which) {
  double sum = 0;
  for (int64_t item = 0; item < kItems; ++item) sum += ValueOf(item, which);
  return sum;
}

void ExpectRight(const Statistics& combined) {
  ASSERT_EQ(combined.all().size(), 4u);
  EXPECT_EQ(combined.all()[1].name, "load");
  EXPECT_EQ(combined.Reals("loss")[0], Tree(0));
  EXPECT_EQ(combined.Reals("entropy")[0], Tree(1) / kItems);
  EXPECT_EQ(combined.Reals("entropy")[1], Tree(2) / kItems);
  EXPECT_EQ(combined.Reals("in_order")[0], InOrder(3));
  for (int64_t e = 0; e < kExperts; ++e) {
    int64_t load = 0;
    for (int64_t item = 0; item < kItems; ++item) load += LoadOf(item, e);
    EXPECT_EQ(combined.Counts("load")[static_cast<size_t>(e)], load) << "which a double cannot hold";
  }
}

TEST(StatisticsSumTest, TheOrdersDiffer) {  // or the tests below would prove nothing
  for (int64_t which = 0; which < 4; ++which) EXPECT_NE(Tree(which), InOrder(which)) << which;
}

TEST(StatisticsSumTest, OneRank) {
  const auto combined = CombineStatistics({SourceOf({{0, 1, 2, 3, 4, 5, 6}}, 0)}, nullptr, kTimeout);
  ASSERT_TRUE(combined.ok()) << combined.status();
  ExpectRight((*combined)[0]);
}

TEST(StatisticsSumTest, TheSameInAnyWorldHoweverItemsAreSpread) {
  std::mt19937 random(5);
  for (int size = 2; size <= 9; ++size) {  // more ranks than items, too
    std::vector<std::vector<int64_t>> items(static_cast<size_t>(size)), others(static_cast<size_t>(size));
    for (int64_t item = 0; item < kItems; ++item) {
      items[random() % items.size()].push_back(item);
      others[random() % others.size()].push_back(kItems - 1 - item);
    }
    auto communicators = MakeInProcessWorld(size, 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto combined = CombineStatistics({SourceOf(items, rank), SourceOf(others, rank)},
                                                communicators[static_cast<size_t>(rank)].get(), kTimeout);
        ASSERT_TRUE(combined.ok()) << combined.status();
        ASSERT_EQ(combined->size(), 2u);
        ExpectRight((*combined)[0]);
        EXPECT_EQ((*combined)[0], (*combined)[1]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace holdfast
