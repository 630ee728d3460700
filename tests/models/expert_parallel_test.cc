// Proves that rows get from experts elsewhere what they get from experts here, bit for bit, gradients included, however
// experts are spread over ranks and nodes, and rows over experts; that memory does not depend on it; that a row goes to
// a node once; and that as many bytes are sent as are foretold. Ranks are threads.

#include "models/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/nn/part_store.h"
#include "framework/parallel/group_exchange.h"
#include "models/expert_bytes.h"
#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

constexpr int64_t kExperts = 6, kChosen = 2, kHidden = 16, kWidth = 12, kRows = 30, kSlots = kRows * kChosen;

ModelConfig LayerOf(bool biased) {
  return {.hidden_size = kHidden,
          .num_experts = kExperts,
          .experts_per_token = kChosen,
          .expert_intermediate_size = kWidth,
          .expert_bias = biased,
          .swiglu_limit = biased ? 0.5 : 0};
}

int64_t SizeOfExpert(bool biased) {
  return ExpertMatrixElements(LayerOf(biased)) + ExpertBiasElements(LayerOf(biased));
}

const std::vector<int32_t> kAll{0, 1, 2, 3, 4, 5};

std::vector<float> Noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

/// Counts vectors that go to another node, and all bytes of rows and of what is sent of them.
class CountingExchange final : public Exchange {
 public:
  CountingExchange(Exchange& inner, std::vector<int> nodes) : inner_(inner), nodes_(std::move(nodes)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::StatusOr<std::vector<int64_t>> AllToAllCounts(absl::Span<const int64_t> counts,
                                                      absl::Span<const int64_t> per_rank) override {
    return inner_.AllToAllCounts(counts, per_rank);
  }
  absl::Status AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) override {
    for (int member = 0; member < size(); ++member) {
      const auto at = static_cast<size_t>(member);
      const bool between = nodes_[at] != nodes_[static_cast<size_t>(rank())];
      if (between && row_bytes == kHidden * 4) vectors_between_nodes += rows.counts[at];
      if (member != rank()) (between ? bytes.between_nodes : bytes.in_node) += rows.counts[at] * row_bytes;
    }
    return inner_.AllToAllRows(rows, result, row_bytes);
  }
  int64_t Begin(Work work) override { return inner_.Begin(std::move(work)); }
  absl::Status Wait(int64_t number) override { return inner_.Wait(number); }
  void Abandon() override { inner_.Abandon(); }
  int64_t vectors_between_nodes = 0;
  ExchangedBytes bytes;

 private:
  Exchange& inner_;
  std::vector<int> nodes_;
};

/// A group whose member servers[e] has expert e.
class TestParts final : public PartStore {
 public:
  TestParts(Exchange& exchange, std::vector<int> nodes, std::vector<int> servers, std::vector<int> homes, bool biased)
      : exchange_(exchange),
        nodes_(std::move(nodes)),
        servers_(std::move(servers)),
        homes_(std::move(homes)),
        biased_(biased) {
    for (int64_t e = 0; e < kExperts; ++e) {
      if (servers_[static_cast<size_t>(e)] != exchange.rank()) continue;
      here.push_back(e);
      const std::vector<float> values = Noise(SizeOfExpert(biased), 100 + static_cast<unsigned>(e));
      weights_.insert(weights_.end(), values.begin(), values.end());
    }
  }

  Exchange& exchange() override { return exchange_; }
  absl::Span<const int> homes() const override { return homes_; }
  absl::Span<const int> nodes() const override { return nodes_; }
  absl::Span<const int> ServersOf(int) const override { return servers_; }
  absl::StatusOr<absl::Span<const Tensor>> PartWeights(int) override {
    weight_views_ = Views(weights_.data());
    return absl::MakeConstSpan(weight_views_);
  }
  absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int, int home) override {
    const auto number = std::find(homes_.begin(), homes_.end(), home) - homes_.begin();
    gradients.resize(homes_.size());
    std::vector<float>& of_home = gradients[static_cast<size_t>(number)];
    EXPECT_TRUE(of_home.empty()) << "home " << home << " twice";
    of_home.assign(weights_.size() + 1, -1.0f);  // one more, so that a rank without experts has some, too
    gradient_views_ = Views(of_home.data());
    return absl::MakeConstSpan(gradient_views_);
  }
  absl::Status EndPartGradients(int) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* device, int64_t n) override {
    return std::vector<int32_t>(device, device + n);
  }
  absl::Status Put(absl::Span<const int32_t> values, int32_t* device) override {
    EXPECT_LE(values.size(), kSlots + 64 * (kExperts + 1)) << "more than there is memory for";
    std::copy(values.begin(), values.end(), device);
    return absl::OkStatus();
  }

  std::vector<int64_t> here;                  // experts
  std::vector<std::vector<float>> gradients;  // by home, of those

 private:
  std::vector<Tensor> Views(float* first) const {
    std::vector<Shape> shapes = {{2 * kWidth, kHidden}, {kHidden, kWidth}};
    if (biased_) shapes.insert(shapes.end(), {{2 * kWidth}, {kHidden}});
    std::vector<Tensor> views;
    for (size_t i = 0; i < here.size(); ++i) {
      for (const Shape& shape : shapes) {
        views.push_back({first, DType::kF32, shape});
        first += shape.elements();
      }
    }
    return views;
  }

  Exchange& exchange_;
  std::vector<int> nodes_, servers_, homes_;
  bool biased_;
  std::vector<float> weights_;
  std::vector<Tensor> weight_views_, gradient_views_;
};

/// What one home has, and what it gets.
struct Home {
  /// Each row goes to two of `choices`, experts, which take the first `room` rows. Every two are chosen alike.
  Home(unsigned seed, const std::vector<int32_t>& choices, int64_t room) : x(Noise(kRows * kHidden, seed)) {
    std::mt19937 random(seed);
    d_y = Noise(kRows * kHidden, seed + 1000);
    weights = Noise(kSlots, seed + 2000);
    std::vector<std::array<int32_t, kChosen>> pairs;
    while (std::ssize(pairs) < kRows) {
      for (size_t i = 0; i < choices.size(); ++i) {
        for (size_t j = 0; j < i; ++j) pairs.push_back({choices[j], choices[i]});
      }
    }
    std::shuffle(pairs.begin(), pairs.end(), random);
    std::vector<int32_t> experts;
    for (const auto& pair : pairs) experts.insert(experts.end(), pair.begin(), pair.end());
    std::vector<int32_t> dropped;
    for (int64_t e = 0; e < kExperts; ++e) {
      offsets.push_back(static_cast<int32_t>(by_slot.size()));
      for (int32_t c = 0; c < kSlots; ++c) {
        if (experts[static_cast<size_t>(c)] != e) continue;
        (std::ssize(by_slot) - offsets.back() < room ? by_slot : dropped).push_back(c);
      }
    }
    offsets.push_back(static_cast<int32_t>(by_slot.size()));
    by_slot.insert(by_slot.end(), dropped.begin(), dropped.end());
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
  int64_t rounds = 0;
  int64_t vectors_between_nodes = 0;
  ExchangedBytes bytes;
  size_t arena_bytes = 0;
};

Rank RunRank(Exchange& exchange, const std::vector<int>& nodes, const std::vector<int>& servers,
             const std::vector<int>& homes, bool biased, Home* home) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  CountingExchange counting(exchange, nodes);
  TestParts parts(counting, nodes, servers, homes, biased);
  Arena arena = Arena::Create(*device, 1 << 20).value();
  const Pass pass{.ops = &stream->ops(), .arena = &arena, .batch = 1, .sequence = kRows, .random = {}, .parts = &parts};
  const ModelConfig config = LayerOf(biased);
  const ExpertParallel experts(config, ExpertMlp(config, {}));
  const auto matrix = [](std::vector<float>& values) {
    return kernels::Matrix{values.data(), DType::kF32, std::ssize(values) / kHidden, kHidden, kHidden};
  };
  ExpertTraffic traffic;
  int there = 0, back = 0;
  const ExpertParallel::Beside beside{.there = [&] { ++there; }, .back = [&] { ++back; }};
  absl::Status status;
  if (home == nullptr) {
    status = experts.Forward(pass, 0, nullptr, {}, &traffic, beside);
    if (status.ok()) status = experts.Backward(pass, 0, nullptr, {}, traffic, {}, nullptr, beside);
  } else {
    const ExpertParallel::Rows rows = home->Rows();
    status = experts.Forward(pass, 0, &rows, matrix(home->y), &traffic, beside);
    if (status.ok()) {
      status = experts.Backward(pass, 0, &rows, matrix(home->d_y), traffic, matrix(home->d_x), home->d_weights.data(),
                                beside);
    }
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(there, 2);
  EXPECT_EQ(back, 2);
  return {parts.here,     parts.gradients,   traffic.rounds, counting.vectors_between_nodes,
          counting.bytes, arena.peak_bytes()};
}

/// Of homes that are each alone: gradients by home and expert.
std::vector<std::vector<float>> Alone(std::vector<Home>* homes, bool biased, Rank* rank) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  std::vector<std::vector<float>> gradients;
  for (Home& home : *homes) {
    LocalExchange exchange(stream->ops());
    *rank = RunRank(exchange, {0}, std::vector<int>(kExperts, 0), {0}, biased, &home);
    gradients.push_back(rank->gradients.at(0));
  }
  return gradients;
}

/// Nodes of members, servers of experts, members with a microbatch, the experts that rows choose among.
struct Case {
  std::string name;
  std::vector<int> nodes, servers, homes;
  std::vector<int32_t> choices;
  bool rounds = false;  // more than one
  int64_t room = kRows;
  bool lacking = false;  // what home h may choose lacks `choices[h]`, so that no two have as many rows for an expert
  bool biased = false;   // experts have biases and limits

  int size() const { return static_cast<int>(nodes.size()); }
  std::vector<int32_t> ChoicesOf(size_t home) const {
    std::vector<int32_t> left = choices;
    if (lacking) left.erase(left.begin() + static_cast<std::ptrdiff_t>(home));
    return left;
  }
};

/// How many vectors must go from node to node: each row of x to each other node with experts of its, in both passes,
/// and of d_y; then y and d_x of each of those experts.
int64_t VectorsBetweenNodes(const Case& c, const std::vector<Home>& homes) {
  int64_t vectors = 0;
  for (size_t h = 0; h < homes.size(); ++h) {
    const int node = c.nodes[static_cast<size_t>(c.homes[h])];
    std::set<std::pair<int64_t, int>> rows;
    for (int64_t e = 0; e < kExperts; ++e) {
      const int there = c.nodes[static_cast<size_t>(c.servers[static_cast<size_t>(e)])];
      const auto offset = homes[h].offsets.begin() + e;
      for (int32_t slot = offset[0]; slot < offset[1] && there != node; ++slot) {
        rows.emplace(homes[h].by_slot[static_cast<size_t>(slot)] / kChosen, there);
        vectors += 2;
      }
    }
    vectors += 3 * std::ssize(rows);
  }
  return vectors;
}

std::string NameOfCase(const testing::TestParamInfo<Case>& info) { return info.param.name; }

/// Members 0 .. size - 1.
std::vector<int> All(int size) {
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

class ExpertParallelTest : public testing::TestWithParam<Case> {};

TEST_P(ExpertParallelTest, HasTheBitsOfExpertsHere) {
  const Case& c = GetParam();
  std::vector<Home> expected, homes;
  for (size_t h = 0; h < c.homes.size(); ++h) {
    expected.emplace_back(static_cast<unsigned>(h) + 1, c.ChoicesOf(h), c.room);
  }
  homes = expected;
  Rank alone;
  const std::vector<std::vector<float>> gradients = Alone(&expected, c.biased, &alone);

  auto communicators = MakeInProcessWorld(c.size(), 1);
  std::vector<Rank> ranks(static_cast<size_t>(c.size()));
  std::vector<std::thread> threads;
  for (int member = 0; member < c.size(); ++member) {
    threads.emplace_back([&, member] {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      const auto stream = device->CreateStream().value();
      StepProgress progress;
      Communicator& communicator = *communicators[static_cast<size_t>(member)];
      const auto exchange =
          GroupExchange::Create(communicator, c.nodes, *device, *stream, progress, std::chrono::milliseconds(20'000))
              .value();
      exchange->BeginStep({});
      const auto at = std::find(c.homes.begin(), c.homes.end(), member);
      Home* const home = at == c.homes.end() ? nullptr : &homes[static_cast<size_t>(at - c.homes.begin())];
      ranks[static_cast<size_t>(member)] = RunRank(*exchange, c.nodes, c.servers, c.homes, c.biased, home);
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (size_t h = 0; h < homes.size(); ++h) {
    EXPECT_EQ(homes[h].y, expected[h].y) << "home " << h;
    EXPECT_EQ(homes[h].d_x, expected[h].d_x) << "home " << h;
    EXPECT_EQ(homes[h].d_weights, expected[h].d_weights) << "home " << h;
    for (size_t choice = 0; choice < kSlots; ++choice) {  // y of a choice is its weight times what d_weights is of
      const auto slot = static_cast<size_t>(homes[h].slot_of[choice]);
      const float* const d_y = homes[h].d_y.data() + choice / kChosen * kHidden;
      const float along = std::inner_product(d_y, d_y + kHidden, homes[h].y.data() + slot * kHidden, 0.0f);
      EXPECT_NEAR(homes[h].d_weights[choice] * homes[h].weights[choice], along, 1e-4) << "choice " << choice;
    }
    EXPECT_EQ(std::count(homes[h].d_weights.begin(), homes[h].d_weights.end(), 0.0f), kSlots - homes[h].offsets.back());
  }
  int64_t vectors = 0;
  ExchangedBytes bytes;
  for (const Rank& rank : ranks) {
    ASSERT_EQ(rank.gradients.size(), homes.size());
    for (size_t h = 0; h < homes.size(); ++h) {
      for (size_t i = 0; i < rank.experts.size(); ++i) {
        const int64_t size = SizeOfExpert(c.biased);
        const auto here = rank.gradients[h].begin() + static_cast<std::ptrdiff_t>(i) * size;
        const auto there = gradients[h].begin() + rank.experts[i] * size;
        EXPECT_TRUE(std::equal(here, here + size, there)) << "home " << h << " expert " << rank.experts[i];
      }
    }
    vectors += rank.vectors_between_nodes;
    bytes += rank.bytes;
    EXPECT_EQ(rank.rounds > 1, c.rounds) << rank.rounds;
    EXPECT_EQ(rank.arena_bytes, alone.arena_bytes);  // whatever goes where
  }
  EXPECT_EQ(vectors, VectorsBetweenNodes(c, homes));
  if (c.choices != kAll || c.room < kRows || c.lacking) return;
  std::vector<int64_t> experts(c.nodes.size());
  for (const int server : c.servers) ++experts[static_cast<size_t>(server)];
  const ExpectedBytes expected_bytes = ExpectedTokenBytes(
      {.chosen = kChosen, .experts = experts, .nodes = c.nodes, .homes = c.homes, .vector_bytes = kHidden * 4});
  const auto tokens = static_cast<double>(kRows * std::ssize(c.homes));
  EXPECT_NEAR(static_cast<double>(bytes.in_node), expected_bytes.in_node * tokens, 1e-3);
  EXPECT_NEAR(static_cast<double>(bytes.between_nodes), expected_bytes.between_nodes * tokens, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Spread, ExpertParallelTest,
    testing::Values(
        Case{"Even", {0, 0, 0}, {0, 0, 1, 1, 2, 2}, {0, 1, 2}, kAll},
        Case{"Pair", {0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1}, kAll},
        Case{"Scattered", {0, 0, 0}, {2, 0, 1, 0, 2, 1}, {0, 2}, kAll},
        Case{"Dropped", {0, 0, 0}, {2, 0, 1, 0, 2, 1}, {0, 2}, kAll, false, 3},
        Case{"DroppedOnTwoNodes", {0, 1, 1}, {2, 0, 1, 0, 2, 1}, {0, 2}, kAll, false, 3},
        Case{"OneServesAll", {0, 0, 0}, {1, 1, 1, 1, 1, 1}, {0, 2}, kAll},
        Case{"OneHome", {0, 0, 0, 0}, {3, 2, 1, 0, 3, 3}, {1}, kAll},
        Case{"MoreRanksThanExperts", {0, 0, 0, 0, 0, 0, 0, 0}, {7, 1, 3, 0, 5, 6}, {0, 2, 4, 6}, kAll},
        Case{"AllOnTwo", {0, 0, 0, 0, 0, 0}, {0, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}, {0, 1}, true},
        Case{"AllOnOneRankOfMany", {0, 0, 0, 0, 0, 0, 0}, {4, 0, 1, 2, 4, 3}, {0, 1, 3, 4, 5, 6}, {0, 4}, true},
        Case{"TwoNodes", {0, 0, 1, 1}, {0, 1, 2, 2, 3, 3}, {0, 1, 2, 3}, kAll},
        Case{"TwoNodesAndNoTwoHomesAlike", {0, 0, 1, 1}, {0, 1, 2, 2, 3, 3}, {0, 1, 2, 3}, kAll, false, kRows, true},
        Case{"EachItsOwnNode", {0, 1, 2}, {0, 0, 1, 1, 2, 2}, {0, 1, 2}, kAll},
        Case{"UnevenNodes", {0, 0, 0, 1, 2, 2}, {3, 4, 5, 0, 4, 3}, {0, 1, 2, 4}, kAll},
        Case{"NodesThatAlternate", {0, 1, 0, 1, 0}, {1, 0, 3, 2, 4, 3}, {1, 2, 4}, kAll},
        Case{"NodeThatOnlyServes", {0, 0, 1, 1}, {2, 2, 3, 3, 2, 3}, {0, 1}, kAll},
        Case{"AllOnTwoOfAnotherNode", {0, 0, 0, 0, 1, 1}, {0, 4, 1, 5, 2, 3}, {0, 1, 2, 3, 4, 5}, {1, 3}, true},
        Case{"AllOnOneRankOfThreeNodes", {0, 0, 1, 1, 2, 2, 2}, {4, 0, 1, 2, 4, 3}, {0, 1, 3, 4, 5, 6}, {0, 4}, true},
        Case{"PairWithBiases", {0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1}, kAll, false, kRows, false, true},
        Case{"DroppedWithBiases", {0, 1, 1}, {2, 0, 1, 0, 2, 1}, {0, 2}, kAll, false, 3, false, true},
        Case{"AllOnTwoWithBiases", {0, 0, 0, 0, 0, 0}, {0, 0, 1, 2, 3, 4}, All(6), {0, 1}, true, kRows, false, true},
        // The first rank serves four experts, none of which a row goes to.
        Case{"ManyHomesWithoutRows", std::vector<int>(100), {0, 0, 0, 0, 1, 2}, All(100), {4, 5}, true},
        Case{"NoRowsWithBiases", {0, 0, 0}, {0, 0, 0, 0, 1, 2}, All(3), {4, 5}, false, kRows, false, true}),
    NameOfCase);

}  // namespace
}  // namespace holdfast
