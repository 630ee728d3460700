// Proves that rows get from experts elsewhere what they get from experts here, bit for bit, gradients included, however
// experts are spread over ranks and rows over experts; and that memory does not depend on it. Ranks are threads.

#include "models/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/in_process.h"
#include "framework/nn/part_store.h"
#include "framework/parallel/group_exchange.h"

namespace holdfast {
namespace {

constexpr int64_t kExperts = 6, kChosen = 2, kHidden = 16, kWidth = 12, kRows = 24, kSlots = kRows * kChosen;
constexpr int64_t kGateUp = 2 * kWidth * kHidden, kDown = kHidden * kWidth, kExpert = kGateUp + kDown;

std::vector<float> Noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

/// Counts the rounds.
class CountingExchange final : public Exchange {
 public:
  explicit CountingExchange(Exchange& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::StatusOr<std::vector<int64_t>> AllToAllCounts(absl::Span<const int64_t> counts,
                                                      absl::Span<const int64_t> per_rank) override {
    return inner_.AllToAllCounts(counts, per_rank);
  }
  absl::Status AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) override {
    ++calls;
    return inner_.AllToAllRows(rows, result, row_bytes);
  }
  int calls = 0;

 private:
  Exchange& inner_;
};

/// A group whose member servers[e] has expert e.
class TestParts final : public PartStore {
 public:
  TestParts(Exchange& exchange, std::vector<int> servers, std::vector<int> homes)
      : exchange_(exchange), servers_(std::move(servers)), homes_(std::move(homes)) {
    for (int64_t e = 0; e < kExperts; ++e) {
      if (servers_[static_cast<size_t>(e)] != exchange.rank()) continue;
      here.push_back(e);
      const std::vector<float> values = Noise(kExpert, 100 + static_cast<unsigned>(e));
      weights_.insert(weights_.end(), values.begin(), values.end());
    }
  }

  Exchange& exchange() override { return exchange_; }
  absl::Span<const int> homes() const override { return homes_; }
  absl::Span<const int> ServersOf(int) const override { return servers_; }
  absl::StatusOr<absl::Span<const Tensor>> PartWeights(int) override {
    weight_views_ = Views(weights_.data());
    return absl::MakeConstSpan(weight_views_);
  }
  absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int) override {
    gradients.emplace_back(weights_.size(), -1.0f);
    gradient_views_ = Views(gradients.back().data());
    return absl::MakeConstSpan(gradient_views_);
  }
  absl::Status EndPartGradients(int) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* device, int64_t n) override {
    return std::vector<int32_t>(device, device + n);
  }
  absl::Status Put(absl::Span<const int32_t> values, int32_t* device) override {
    std::copy(values.begin(), values.end(), device);
    return absl::OkStatus();
  }

  std::vector<int64_t> here;                  // experts
  std::vector<std::vector<float>> gradients;  // by home, of those

 private:
  std::vector<Tensor> Views(float* first) const {
    std::vector<Tensor> views;
    for (size_t i = 0; i < here.size(); ++i, first += kExpert) {
      views.push_back({first, DType::kF32, {2 * kWidth, kHidden}});
      views.push_back({first + kGateUp, DType::kF32, {kHidden, kWidth}});
    }
    return views;
  }

  Exchange& exchange_;
  std::vector<int> servers_, homes_;
  std::vector<float> weights_;
  std::vector<Tensor> weight_views_, gradient_views_;
};

/// What one home has, and what it gets.
struct Home {
  /// Each row goes to two of `choices`, experts.
  Home(unsigned seed, const std::vector<int32_t>& choices) : x(Noise(kRows * kHidden, seed)) {
    std::mt19937 random(seed);
    d_y = Noise(kRows * kHidden, seed + 1000);
    weights = Noise(kSlots, seed + 2000);
    std::vector<int32_t> experts;
    for (int64_t r = 0; r < kRows; ++r) {
      std::vector<int32_t> chosen;
      std::sample(choices.begin(), choices.end(), std::back_inserter(chosen), kChosen, random);
      experts.insert(experts.end(), chosen.begin(), chosen.end());
    }
    for (int64_t e = 0; e < kExperts; ++e) {
      offsets.push_back(static_cast<int32_t>(by_slot.size()));
      for (int32_t c = 0; c < kSlots; ++c) {
        if (experts[static_cast<size_t>(c)] == e) by_slot.push_back(c);
      }
    }
    offsets.push_back(static_cast<int32_t>(kSlots));
    slot_of.resize(by_slot.size());
    for (int32_t s = 0; s < kSlots; ++s) slot_of[static_cast<size_t>(by_slot[static_cast<size_t>(s)])] = s;
  }

  ExpertParallel::Rows Rows() const {
    return {.slots = {.num_experts = kExperts,
                      .chosen = kChosen,
                      .slots = kSlots,
                      .offsets = offsets.data(),
                      .choices = by_slot.data(),
                      .slot_of = slot_of.data()},
            .weights = weights.data(),
            .x = {x.data(), DType::kF32, kRows, kHidden, kHidden}};
  }

  std::vector<float> x, d_y, weights;
  std::vector<int32_t> offsets, by_slot, slot_of;
  std::vector<float> y = std::vector<float>(kSlots * kHidden), d_x = y, d_weights = std::vector<float>(kSlots);
};

/// Forward and backward of one rank.
struct Rank {
  std::vector<int64_t> experts;
  std::vector<std::vector<float>> gradients;
  int calls = 0;
  size_t arena_bytes = 0;
};

Rank RunRank(Exchange& exchange, const std::vector<int>& servers, const std::vector<int>& homes, Home* home) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  CountingExchange counting(exchange);
  TestParts parts(counting, servers, homes);
  Arena arena = Arena::Create(*device, 1 << 20).value();
  const Pass pass{.ops = &stream->ops(), .arena = &arena, .batch = 1, .sequence = kRows, .random = {}, .parts = &parts};
  const ExpertParallel experts(kExperts, kChosen, kHidden, kWidth);
  const auto matrix = [](std::vector<float>& values) {
    return kernels::Matrix{values.data(), DType::kF32, std::ssize(values) / kHidden, kHidden, kHidden};
  };
  ExpertTraffic traffic;
  absl::Status status;
  if (home == nullptr) {
    status = experts.Forward(pass, 0, nullptr, {}, &traffic);
    if (status.ok()) status = experts.Backward(pass, 0, nullptr, {}, traffic, {}, nullptr);
  } else {
    const ExpertParallel::Rows rows = home->Rows();
    status = experts.Forward(pass, 0, &rows, matrix(home->y), &traffic);
    if (status.ok()) {
      status = experts.Backward(pass, 0, &rows, matrix(home->d_y), traffic, matrix(home->d_x), home->d_weights.data());
    }
  }
  EXPECT_TRUE(status.ok()) << status;
  return {parts.here, parts.gradients, counting.calls, arena.peak_bytes()};
}

/// Of homes that are each alone: gradients by home and expert.
std::vector<std::vector<float>> Alone(std::vector<Home>* homes, Rank* rank) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  std::vector<std::vector<float>> gradients;
  for (Home& home : *homes) {
    LocalExchange exchange(stream->ops());
    *rank = RunRank(exchange, std::vector<int>(kExperts, 0), {0}, &home);
    gradients.push_back(rank->gradients.at(0));
  }
  return gradients;
}

/// Servers of experts, members with a microbatch, the experts that rows choose among.
struct Case {
  std::string name;
  int size;
  std::vector<int> servers, homes;
  std::vector<int32_t> choices;
  bool rounds = false;  // more than one
};

std::string NameOfCase(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class ExpertParallelTest : public testing::TestWithParam<Case> {};

TEST_P(ExpertParallelTest, HasTheBitsOfExpertsHere) {
  const Case& c = GetParam();
  std::vector<Home> expected, homes;
  for (size_t h = 0; h < c.homes.size(); ++h) expected.emplace_back(static_cast<unsigned>(h) + 1, c.choices);
  homes = expected;
  Rank alone;
  const std::vector<std::vector<float>> gradients = Alone(&expected, &alone);

  auto communicators = MakeInProcessWorld(c.size, 1);
  std::vector<Rank> ranks(static_cast<size_t>(c.size));
  std::vector<std::thread> threads;
  for (int member = 0; member < c.size; ++member) {
    threads.emplace_back([&, member] {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      const auto stream = device->CreateStream().value();
      StepProgress progress;
      Communicator& communicator = *communicators[static_cast<size_t>(member)];
      GroupExchange exchange(communicator, *stream, progress, std::chrono::milliseconds(20'000));
      exchange.BeginStep({});
      const auto at = std::find(c.homes.begin(), c.homes.end(), member);
      Home* const home = at == c.homes.end() ? nullptr : &homes[static_cast<size_t>(at - c.homes.begin())];
      ranks[static_cast<size_t>(member)] = RunRank(exchange, c.servers, c.homes, home);
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (size_t h = 0; h < homes.size(); ++h) {
    EXPECT_EQ(homes[h].y, expected[h].y) << "home " << h;
    EXPECT_EQ(homes[h].d_x, expected[h].d_x) << "home " << h;
    EXPECT_EQ(homes[h].d_weights, expected[h].d_weights) << "home " << h;
  }
  for (const Rank& rank : ranks) {
    ASSERT_EQ(rank.gradients.size(), homes.size());
    for (size_t h = 0; h < homes.size(); ++h) {
      for (size_t i = 0; i < rank.experts.size(); ++i) {
        const auto here = rank.gradients[h].begin() + static_cast<std::ptrdiff_t>(i) * kExpert;
        const auto there = gradients[h].begin() + rank.experts[i] * kExpert;
        EXPECT_TRUE(std::equal(here, here + kExpert, there)) << "home " << h << " expert " << rank.experts[i];
      }
    }
    EXPECT_EQ(rank.calls > alone.calls, c.rounds) << rank.calls << " against " << alone.calls;
    EXPECT_EQ(rank.arena_bytes, alone.arena_bytes);  // whatever goes where
  }
}

INSTANTIATE_TEST_SUITE_P(
    Spread, ExpertParallelTest,
    testing::Values(Case{"Even", 3, {0, 0, 1, 1, 2, 2}, {0, 1, 2}, {0, 1, 2, 3, 4, 5}},
                    Case{"Pair", 2, {0, 0, 0, 1, 1, 1}, {0, 1}, {0, 1, 2, 3, 4, 5}},
                    Case{"Scattered", 3, {2, 0, 1, 0, 2, 1}, {0, 2}, {0, 1, 2, 3, 4, 5}},
                    Case{"OneServesAll", 3, {1, 1, 1, 1, 1, 1}, {0, 2}, {0, 1, 2, 3, 4, 5}},
                    Case{"OneHome", 4, {3, 2, 1, 0, 3, 3}, {1}, {0, 1, 2, 3, 4, 5}},
                    Case{"MoreRanksThanExperts", 8, {7, 1, 3, 0, 5, 6}, {0, 2, 4, 6}, {0, 1, 2, 3, 4, 5}},
                    Case{"AllOnTwo", 6, {0, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}, {0, 1}, true},
                    Case{"AllOnOneRankOfMany", 7, {4, 0, 1, 2, 4, 3}, {0, 1, 3, 4, 5, 6}, {0, 4}, true}),
    NameOfCase);

}  // namespace
}  // namespace holdfast
