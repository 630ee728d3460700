// Proves the operations of mixture-of-experts layers against double precision: which experts a row chooses (ties,
// groups, biases), gradients of the router by finite differences, rows there and back, products by expert at any
// imbalance, empty experts included.

#include "kernels/experts.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "tests/kernels/experts_test_util.h"

namespace holdfast::kernels {
namespace {

struct Routed {
  Routed(int64_t rows, const RouterShape& shape)
      : scores(static_cast<size_t>(rows * shape.num_experts), NAN),
        weights(static_cast<size_t>(rows * shape.chosen), NAN),
        lse(static_cast<size_t>(rows), NAN),
        experts(weights.size(), -1) {}
  RouterOut out() { return {scores.data(), experts.data(), weights.data(), lse.data()}; }

  std::vector<float> scores, weights, lse;
  std::vector<int32_t> experts;
};

/// One row in double precision.
struct Reference {
  Reference(const std::vector<double>& logits, const RouterShape& shape) {
    double max = *std::max_element(logits.begin(), logits.end()), sum = 0;
    for (const double l : logits) sum += std::exp(l - max);
    lse = max + std::log(sum);
    for (const double l : logits) {
      softmax.push_back(std::exp(l - lse));
      scores.push_back(shape.score == RouterScore::kSoftmax ? softmax.back() : 1 / (1 + std::exp(-l)));
    }
  }

  /// By sorting all of them, other than the kernel does.
  std::vector<int32_t> Choose(const RouterShape& shape) const {
    std::vector<double> ranked = scores;
    if (shape.bias != nullptr) {
      for (size_t i = 0; i < ranked.size(); ++i) ranked[i] += static_cast<double>(shape.bias[i]);
    }
    const size_t size = ranked.size() / static_cast<size_t>(shape.groups);
    std::vector<std::pair<double, int>> groups;
    for (size_t g = 0; g < static_cast<size_t>(shape.groups); ++g) {
      std::vector<double> members(ranked.begin() + static_cast<std::ptrdiff_t>(g * size),
                                  ranked.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(members.rbegin(), members.rend());
      groups.emplace_back(-(members[0] + (size > 1 ? members[1] : 0)), g);
    }
    std::sort(groups.begin(), groups.end());
    groups.resize(static_cast<size_t>(shape.groups_chosen));
    std::vector<std::pair<double, int32_t>> order;
    for (const auto& [unused, g] : groups) {
      for (size_t i = static_cast<size_t>(g) * size; i < (static_cast<size_t>(g) + 1) * size; ++i) {
        order.emplace_back(-ranked[i], static_cast<int32_t>(i));
      }
    }
    std::sort(order.begin(), order.end());
    std::vector<int32_t> experts;
    for (int64_t j = 0; j < shape.chosen; ++j) experts.push_back(order[static_cast<size_t>(j)].second);
    std::sort(experts.begin(), experts.end());
    return experts;
  }

  std::vector<double> Weights(const RouterShape& shape, const int32_t* experts) const {
    double sum = 0;
    for (int64_t j = 0; j < shape.chosen; ++j) sum += scores[static_cast<size_t>(experts[j])];
    std::vector<double> weights;
    for (int64_t j = 0; j < shape.chosen; ++j) {
      const double score = scores[static_cast<size_t>(experts[j])];
      weights.push_back((shape.normalize ? score / sum : score) * static_cast<double>(shape.scale));
    }
    return weights;
  }

  double lse = 0;
  std::vector<double> softmax, scores;
};

std::vector<RouterShape> Shapes(const std::vector<float>& bias) {
  std::vector<RouterShape> shapes;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      shapes.push_back({.num_experts = 5, .chosen = 2, .score = score, .normalize = normalize});
      shapes.push_back({.num_experts = 8, .chosen = 8, .score = score, .normalize = normalize, .scale = 2.5f});
      shapes.push_back({.num_experts = 1, .chosen = 1, .score = score, .normalize = normalize});
      shapes.push_back({.num_experts = 67, .chosen = 6, .score = score, .normalize = normalize, .bias = bias.data()});
      shapes.push_back({.num_experts = 64,
                        .chosen = 5,
                        .score = score,
                        .normalize = normalize,
                        .bias = bias.data(),
                        .groups = 8,
                        .groups_chosen = 3});
      shapes.push_back(
          {.num_experts = 6, .chosen = 2, .score = score, .normalize = normalize, .groups = 6, .groups_chosen = 3});
    }
  }
  return shapes;
}

std::vector<double> Row(const TestMatrix& m, int64_t r) {
  std::vector<double> row;
  for (int64_t c = 0; c < m.cols(); ++c) row.push_back(static_cast<double>(m.Get(r, c)));
  return row;
}

TEST(Router, ChoosesAndWeighsAsTheReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kRows = 70;
  const std::vector<float> bias = RandomVector(rng, 67, 0.3f);
  for (const RouterShape& shape : Shapes(bias)) {
    TestMatrix logits(DType::kF32, kRows, shape.num_experts, shape.num_experts + 3);
    logits.Fill(rng, 2);
    Routed routed(kRows, shape);
    ops->RouterForward(routed.out(), logits.view(), shape);
    for (int64_t r = 0; r < kRows; ++r) {
      const Reference reference(Row(logits, r), shape);
      const std::span<const float> scores(routed.scores.data() + r * shape.num_experts,
                                          static_cast<size_t>(shape.num_experts));
      ASSERT_LE(MaxError(scores, reference.scores, 1e-3), 1e-5);
      ASSERT_NEAR(static_cast<double>(routed.lse[static_cast<size_t>(r)]), reference.lse, 1e-5);
      const int32_t* experts = routed.experts.data() + r * shape.chosen;
      ASSERT_EQ(std::vector<int32_t>(experts, experts + shape.chosen), reference.Choose(shape)) << "row " << r;
      const std::span<const float> weights(routed.weights.data() + r * shape.chosen, static_cast<size_t>(shape.chosen));
      ASSERT_LE(MaxError(weights, reference.Weights(shape, experts), 1e-3), 1e-5);
    }
  }
}

TEST(Router, TiesGoToTheLowerIndex) {
  TestOps ops(1);
  const RouterShape shape{.num_experts = 6, .chosen = 3};
  TestMatrix logits(DType::kF32, 3, 6);
  logits.Set(std::vector<float>{1, 1, 1, 1, 1, 1,  //
                                0, 2, 1, 2, 1, 1,  //
                                -1, -1, 0, -1, -1, -1});
  Routed routed(3, shape);
  ops->RouterForward(routed.out(), logits.view(), shape);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{0, 1, 2, 1, 2, 3, 0, 1, 2}));

  const RouterShape groups{.num_experts = 6, .chosen = 2, .groups = 3, .groups_chosen = 1};
  Routed grouped(3, groups);
  ops->RouterForward(grouped.out(), logits.view(), groups);
  EXPECT_EQ(grouped.experts, (std::vector<int32_t>{0, 1, 2, 3, 2, 3}));
}

// A diverged run has to be seen as one, not crash: NaN goes through, and choices are experts that there are.
TEST(Router, KeepsNaNAndChoosesItLast) {
  TestOps ops(1);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterShape shape{.num_experts = 5, .chosen = 3, .score = score};
    TestMatrix logits(DType::kF32, 2, 5);
    logits.Set(std::vector<float>{NAN, NAN, NAN, NAN, NAN, NAN, 2, NAN, 4, 5});
    Routed routed(2, shape);
    ops->RouterForward(routed.out(), logits.view(), shape);
    EXPECT_TRUE(std::isnan(routed.weights[0]));
    EXPECT_TRUE(std::isnan(routed.lse[1]));
    const bool one_by_one = score == RouterScore::kSigmoid;  // a softmax is NaN everywhere
    EXPECT_EQ(routed.experts,
              one_by_one ? (std::vector<int32_t>{0, 1, 2, 1, 3, 4}) : (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  }
}

/// The `count` largest of `candidates` by (value descending, index ascending), NaN last, in ascending order.
std::vector<int32_t> LargestOf(const std::vector<float>& values, std::vector<int32_t> candidates, int64_t count) {
  const auto rank = [&](int32_t i) {
    const float value = values[static_cast<size_t>(i)];
    return std::isnan(value) ? -INFINITY : value;
  };
  std::stable_sort(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  candidates.resize(static_cast<size_t>(count));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

// Of the scores that the operation itself gives, so exactly: few values, so that ties are everywhere.
TEST(Router, ChoosesByRankOfAnyScores) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr float kValues[] = {0.0f, -0.0f, 1.0f, -1.0f, 90.0f, -90.0f, 1e-40f, INFINITY, -INFINITY, NAN};
  for (int trial = 0; trial < 60; ++trial) {
    const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(most)); };
    const int64_t groups = rng() % 2 == 0 ? 1 : up_to(9), size = up_to(trial % 10 == 0 ? 70 : 9);
    const int64_t groups_chosen = up_to(groups);
    const int64_t chosen = up_to(std::min(groups_chosen * size, kMaxExpertsPerRow)), rows = up_to(20);
    const uint64_t kinds = trial % 3 == 0 ? std::size(kValues) : 6;  // without infinities and NaN in most
    std::vector<float> bias(static_cast<size_t>(groups * size));
    for (float& b : bias) b = rng() % 2 == 0 ? 0.0f : 0.25f;
    const RouterShape shape{.num_experts = groups * size,
                            .chosen = chosen,
                            .score = rng() % 2 == 0 ? RouterScore::kSoftmax : RouterScore::kSigmoid,
                            .bias = rng() % 2 == 0 ? bias.data() : nullptr,
                            .groups = groups,
                            .groups_chosen = groups_chosen};
    TestMatrix logits(DType::kF32, rows, shape.num_experts, shape.num_experts + 1);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t e = 0; e < shape.num_experts; ++e) logits.Set(r, e, kValues[rng() % kinds]);
    }
    Routed routed(rows, shape);
    ops->RouterForward(routed.out(), logits.view(), shape);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<float> ranked;
      for (int64_t e = 0; e < shape.num_experts; ++e) {
        ranked.push_back(routed.scores[static_cast<size_t>(r * shape.num_experts + e)] +
                         (shape.bias != nullptr ? bias[static_cast<size_t>(e)] : 0.0f));
      }
      std::vector<float> sums;
      std::vector<int32_t> group_indices, candidates;
      for (int64_t g = 0; g < groups; ++g) {
        std::vector<float> members(ranked.begin() + g * size, ranked.begin() + (g + 1) * size);
        for (float& x : members) x = std::isnan(x) ? -INFINITY : x;
        std::sort(members.rbegin(), members.rend());
        sums.push_back(size > 1 ? members[0] + members[1] : members[0]);
        group_indices.push_back(static_cast<int32_t>(g));
      }
      for (const int32_t g : LargestOf(sums, group_indices, groups_chosen)) {
        for (int64_t i = 0; i < size; ++i) candidates.push_back(static_cast<int32_t>(g * size + i));
      }
      const int32_t* experts = routed.experts.data() + r * chosen;
      ASSERT_EQ(std::vector<int32_t>(experts, experts + chosen), LargestOf(ranked, candidates, chosen))
          << groups << " groups of " << size << ", trial " << trial;
    }
  }
}

TEST(Router, GradientIsThatOfTheReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kRows = 9;
  const std::vector<float> bias = RandomVector(rng, 67, 0.3f);
  for (const RouterShape& shape : Shapes(bias)) {
    for (const bool auxiliary : {false, true}) {
      TestMatrix logits(DType::kF32, kRows, shape.num_experts, shape.num_experts + 1);
      TestMatrix d_logits(DType::kF32, kRows, shape.num_experts, shape.num_experts + 2);
      logits.Fill(rng);
      Routed routed(kRows, shape);
      ops->RouterForward(routed.out(), logits.view(), shape);
      const std::vector<float> d_weights = RandomVector(rng, kRows * shape.chosen);
      const std::vector<float> slope = RandomVector(rng, shape.num_experts);
      const float z_scale = auxiliary ? 0.3f : 0.0f;
      ops->RouterBackward({.d_logits = d_logits.view(),
                           .logits = logits.view(),
                           .forward = routed.out(),
                           .d_weights = d_weights.data(),
                           .slope = auxiliary ? slope.data() : nullptr,
                           .z_scale = z_scale},
                          shape);
      std::vector<double> expected;
      for (int64_t r = 0; r < kRows; ++r) {
        const std::vector<double> row = Row(logits, r);
        const auto value = [&](const std::vector<double>& at) {
          const Reference reference(at, shape);
          const std::vector<double> weights = reference.Weights(shape, routed.experts.data() + r * shape.chosen);
          double sum = 0;
          for (size_t j = 0; j < weights.size(); ++j) {
            sum += weights[j] * static_cast<double>(d_weights[static_cast<size_t>(r * shape.chosen) + j]);
          }
          if (!auxiliary) return sum;
          const double total = std::accumulate(reference.scores.begin(), reference.scores.end(), 0.0);
          for (size_t i = 0; i < at.size(); ++i) sum += static_cast<double>(slope[i]) * reference.scores[i] / total;
          return sum + static_cast<double>(z_scale) * reference.lse * reference.lse;
        };
        for (size_t i = 0; i < row.size(); ++i) {
          constexpr double kStep = 1e-5;
          std::vector<double> above = row, below = row;
          above[i] += kStep;
          below[i] -= kStep;
          expected.push_back((value(above) - value(below)) / (2 * kStep));
        }
      }
      EXPECT_LE(MaxError(d_logits.Values(), expected, 0.1), 2e-5) << shape.num_experts << " experts";
      EXPECT_TRUE(d_logits.PaddingIntact());
    }
  }
}

// A bias chooses experts whose softmax underflowed, and all of a row's sigmoids do: nothing is divided by 0.
TEST(Router, ScoresOfZeroGiveFiniteWeightsAndGradients) {
  TestOps ops(2);
  constexpr float kLow = -300;
  const std::vector<float> bias{-2, 0, 0, 0}, slope{1, 2, 3, 4}, d_weights{1, -2, 3, 4};
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterShape shape{.num_experts = 4, .chosen = 2, .score = score, .bias = bias.data()};
    TestMatrix logits(DType::kF32, 2, 4), d_logits(DType::kF32, 2, 4);
    logits.Set(std::vector<float>{score == RouterScore::kSoftmax ? 0 : kLow, kLow, kLow, kLow, 1, 0, -1, 2});
    Routed routed(2, shape);
    ops->RouterForward(routed.out(), logits.view(), shape);
    EXPECT_EQ(routed.weights[0], 0);
    EXPECT_EQ(routed.weights[1], 0);
    EXPECT_NEAR(routed.weights[2] + routed.weights[3], 1, 1e-6);
    for (const bool auxiliary : {false, true}) {
      ops->RouterBackward({.d_logits = d_logits.view(),
                           .logits = logits.view(),
                           .forward = routed.out(),
                           .d_weights = d_weights.data(),
                           .slope = auxiliary ? slope.data() : nullptr,
                           .z_scale = auxiliary ? 0.3f : 0},
                          shape);
      for (const float x : d_logits.Values()) EXPECT_TRUE(std::isfinite(x)) << x;
      for (int64_t e = 0; e < 4 && !auxiliary; ++e) EXPECT_EQ(d_logits.Get(0, e), 0);
      EXPECT_NE(d_logits.Get(1, 3), 0);
    }
  }
}

/// Rows whose choices are given.
class ExpertRowsTest : public testing::Test {
 protected:
  /// With a capacity rows stay by `weights`.
  void Sort(TestOps& ops, const std::vector<int32_t>& experts, const RouterShape& shape,
            const std::vector<float>& weights = {}) {
    num_rows_ = static_cast<int64_t>(experts.size()) / shape.chosen;
    offsets_.assign(static_cast<size_t>(shape.num_experts) + 1, -1);
    choices_.assign(experts.size(), -1);
    slot_of_.assign(experts.size(), -1);
    counts_.assign(static_cast<size_t>(shape.num_experts), -1);
    ops->SortChoices({offsets_.data(), choices_.data(), slot_of_.data(), counts_.data()}, experts.data(),
                     weights.data(), num_rows_, shape);
    rows_ = {.num_experts = shape.num_experts,
             .chosen = shape.chosen,
             .slots = static_cast<int64_t>(experts.size()),
             .offsets = offsets_.data(),
             .choices = choices_.data(),
             .slot_of = slot_of_.data()};
  }

  /// Random distinct experts; a skewed share of rows goes to the first ones, some experts get nothing.
  static std::vector<int32_t> RandomExperts(Rng& rng, int64_t rows, const RouterShape& shape) {
    std::vector<int32_t> experts;
    const auto used = static_cast<uint64_t>(std::max(shape.chosen, shape.num_experts - 1));
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> row;
      while (static_cast<int64_t>(row.size()) < shape.chosen) {
        const auto e = static_cast<int32_t>(std::min(rng() % used, rng() % used));
        if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
      }
      std::sort(row.begin(), row.end());
      experts.insert(experts.end(), row.begin(), row.end());
    }
    return experts;
  }

  int32_t ExpertOf(int64_t slot) const {
    return static_cast<int32_t>(std::upper_bound(offsets_.begin(), offsets_.end(), slot) - offsets_.begin()) - 1;
  }

  int64_t num_rows_ = 0;
  std::vector<int32_t> offsets_, choices_, slot_of_, counts_;
  ExpertRows rows_;
};

TEST_F(ExpertRowsTest, ChoicesAreSortedByExpertAndRow) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const RouterShape& shape :
       {RouterShape{.num_experts = 7, .chosen = 2}, RouterShape{.num_experts = 3, .chosen = 3},
        RouterShape{.num_experts = 40, .chosen = 1}, RouterShape{.num_experts = 1, .chosen = 1},
        RouterShape{.num_experts = 600, .chosen = 8}}) {
    const int64_t rows = shape.num_experts > 40 ? 401 : shape.num_experts == 40 ? 17500 : 33;
    const std::vector<int32_t> experts = RandomExperts(rng, rows, shape);
    Sort(ops, experts, shape);
    EXPECT_EQ(offsets_.front(), 0);
    EXPECT_EQ(offsets_.back(), rows_.slots);
    for (int32_t slot = 0; slot < rows_.slots; ++slot) {
      const int32_t choice = choices_[static_cast<size_t>(slot)];
      EXPECT_EQ(experts[static_cast<size_t>(choice)], ExpertOf(slot));
      EXPECT_EQ(slot_of_[static_cast<size_t>(choice)], slot);
      if (slot > 0 && ExpertOf(slot) == ExpertOf(slot - 1)) {
        EXPECT_GT(choice, choices_[static_cast<size_t>(slot - 1)]);
      }
    }
  }
}

// Few weights, so that ties are everywhere, and some that are none.
TEST_F(ExpertRowsTest, TheLargestWeightsStayWhereAnExpertIsFull) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr float kWeights[] = {0.25f, 0.5f, 0.125f, 0.0f, -0.0f, NAN, -INFINITY};
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t num_experts = 1 + static_cast<int64_t>(rng() % 9);
    RouterShape shape{.num_experts = num_experts,
                      .chosen = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(num_experts))};
    const int64_t rows = trial % 12 == 0 ? 700 : static_cast<int64_t>(rng() % 40);
    shape.capacity = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(rows + 2));
    const std::vector<int32_t> experts = RandomExperts(rng, rows, shape);
    std::vector<float> weights(experts.size());
    for (float& w : weights) w = kWeights[rng() % std::size(kWeights)];
    std::vector<int32_t> order, dropped, offsets = {0}, counts;
    for (int32_t e = 0; e < num_experts; ++e) {
      std::vector<int32_t> own;
      for (int32_t c = 0; c < std::ssize(experts); ++c) {
        if (experts[static_cast<size_t>(c)] == e) own.push_back(c);
      }
      counts.push_back(static_cast<int32_t>(own.size()));
      std::vector<int32_t> kept = LargestOf(weights, own, std::min<int64_t>(shape.capacity, std::ssize(own)));
      std::set_difference(own.begin(), own.end(), kept.begin(), kept.end(), std::back_inserter(dropped));
      order.insert(order.end(), kept.begin(), kept.end());
      offsets.push_back(static_cast<int32_t>(order.size()));
    }
    std::sort(dropped.begin(), dropped.end());
    order.insert(order.end(), dropped.begin(), dropped.end());
    Sort(ops, experts, shape, weights);
    ASSERT_EQ(counts_, counts);
    ASSERT_EQ(offsets_, offsets);
    ASSERT_EQ(choices_, order) << rows << " rows, room for " << shape.capacity << ", trial " << trial;
    for (size_t slot = 0; slot < order.size(); ++slot) {
      ASSERT_EQ(slot_of_[static_cast<size_t>(order[slot])], static_cast<int32_t>(slot));
    }
  }
}

// One row keeps both experts, one the second, one the first, one none.
TEST_F(ExpertRowsTest, DroppedChoicesAddNothing) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kRows = 4, kCols = 24, kSlots = 2 * kRows, kKept = 4;
  const RouterShape shape{.num_experts = 3, .chosen = 2, .capacity = 2};
  const std::vector<float> weights = {0.9f, 0.8f, 0.1f, 0.7f, 0.6f, 0.3f, 0.2f, 0.1f};
  for (const DType dtype : kDTypes) {
    Sort(ops, {0, 2, 0, 2, 0, 2, 0, 2}, shape, weights);
    ASSERT_EQ(choices_, (std::vector<int32_t>{0, 4, 1, 3, 2, 5, 6, 7}));
    ASSERT_EQ(offsets_, (std::vector<int32_t>{0, 2, 2, kKept}));
    TestMatrix in(dtype, kSlots, kCols), last(dtype, kRows, kCols), out(dtype, kRows, kCols);
    last.Fill(rng);
    for (int64_t slot = 0; slot < kSlots; ++slot) {  // what was dropped is NaN
      for (int64_t c = 0; c < kCols; ++c) in.Set(slot, c, slot < kKept ? static_cast<float>(slot + 1) : NAN);
    }
    ops->CombineRows(out.view(), in.view(), {}, rows_);
    for (int64_t c = 0; c < kCols; ++c) {
      EXPECT_EQ(out.Get(0, c), 1 + 3);
      EXPECT_EQ(out.Get(1, c), 4);
      EXPECT_EQ(out.Get(2, c), 2);
      EXPECT_EQ(out.Get(3, c), 0);
    }
    ops->CombineRows(out.view(), in.view(), last.view(), rows_);
    for (int64_t c = 0; c < kCols; ++c) EXPECT_EQ(out.Get(3, c), last.Get(3, c));

    TestMatrix matrices(dtype, 3 * kCols, kCols), product(dtype, kSlots, kCols);
    TestMatrix gradient(DType::kF32, 3 * kCols, kCols);
    matrices.Fill(rng);
    ops->ExpertGemm({.a = in.view(),
                     .b = {matrices.view().data, dtype, kCols, kCols, kCols},
                     .transpose_b = true,
                     .b_step = kCols * kCols,
                     .c = product.view()},
                    rows_);
    ops->ExpertGradient({.a = in.view(),
                         .b = in.view(),
                         .c = {gradient.view().data, DType::kF32, kCols, kCols, kCols},
                         .c_step = kCols * kCols},
                        rows_);
    for (const float x : gradient.Values()) ASSERT_FALSE(std::isnan(x));
    for (const float limit : {0.0f, 7.0f}) {
      TestMatrix act(dtype, kSlots, kCols / 2), d_gate_up(dtype, kSlots, kCols);
      std::vector<float> d_weights(weights.size(), NAN);
      ops->ExpertSwigluForward(act.view(), product.view(), weights.data(), limit, rows_);
      ops->ExpertSwigluBackward(d_gate_up.view(), d_weights.data(), act.view(), product.view(), weights.data(), limit,
                                rows_);
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        for (const TestMatrix* m : {&product, &act, &d_gate_up}) {
          ASSERT_EQ(std::isnan(m->Get(slot, 0)), slot >= kKept) << "slot " << slot;
        }
        const float d_weight = d_weights[static_cast<size_t>(choices_[static_cast<size_t>(slot)])];
        EXPECT_EQ(d_weight == 0, slot >= kKept) << "slot " << slot;
      }
    }
  }
}

TEST_F(ExpertRowsTest, RowsGoToTheirSlotsAndAreSummedBack) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const RouterShape shape{.num_experts = 7, .chosen = 3};
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 9, 64, 100}) {
      Sort(ops, RandomExperts(rng, 21, shape), shape);
      TestMatrix in(dtype, 21, cols, cols + 3), gathered(dtype, rows_.slots, cols, cols + 1), last(dtype, 21, cols);
      TestMatrix out(dtype, 21, cols, cols + 5);
      in.Fill(rng);
      last.Fill(rng);
      ops->GatherRows(gathered.view(), in.view(), rows_);
      for (int64_t slot = 0; slot < rows_.slots; ++slot) {
        ASSERT_EQ(Row(gathered, slot), Row(in, choices_[static_cast<size_t>(slot)] / shape.chosen));
      }
      gathered.Fill(rng);
      for (const bool with_last : {false, true}) {
        ops->CombineRows(out.view(), gathered.view(), with_last ? last.view() : Matrix{}, rows_);
        for (int64_t r = 0; r < 21; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const auto at = [&](int64_t j) {
              return gathered.Get(slot_of_[static_cast<size_t>(r * shape.chosen + j)], c);
            };
            float sum = (at(0) + at(1)) + at(2);
            if (with_last) sum += last.Get(r, c);
            ASSERT_EQ(out.Get(r, c), dtype == DType::kF32 ? sum : FromBf16(ToBf16(sum)));
          }
        }
      }
      EXPECT_TRUE(out.PaddingIntact() && gathered.PaddingIntact());
    }
  }
}

TEST_F(ExpertRowsTest, ProductsAreThoseOfEachExpertsRows) {
  Rng rng(NewSeed());
  TestOps ops(2);
  struct Case {
    RouterShape shape;
    bool all_on_one;
    int64_t rows, in, out;
    int64_t padding;  // 8: rows start where wide accesses may
  };
  for (const Case& c : {Case{{.num_experts = 5, .chosen = 2}, false, 37, 24, 40, 2},
                        Case{{.num_experts = 3, .chosen = 1}, true, 37, 24, 40, 2},
                        Case{{.num_experts = 1, .chosen = 1}, false, 1, 8, 8, 8},
                        Case{{.num_experts = 70, .chosen = 3}, false, 9, 8, 16, 8},
                        Case{{.num_experts = 6, .chosen = 2}, false, 260, 136, 200, 8},
                        Case{{.num_experts = 3, .chosen = 1}, true, 300, 168, 72, 8},
                        Case{{.num_experts = 4, .chosen = 4}, false, 130, 32, 136, 8}}) {
    for (const DType dtype : kDTypes) {
      const int64_t in = c.in, out = c.out, gap = 16;
      std::vector<int32_t> experts = RandomExperts(rng, c.rows, c.shape);
      if (c.all_on_one) std::fill(experts.begin(), experts.end(), 1);
      Sort(ops, experts, c.shape);
      const int64_t n = c.shape.num_experts, step = out * in + gap;
      TestMatrix a(dtype, rows_.slots, in, in + c.padding), b(dtype, rows_.slots, out, out + 2 * c.padding);
      TestMatrix weights(dtype, n, step), product(dtype, rows_.slots, out, out + c.padding),
          back(dtype, rows_.slots, in);
      TestMatrix gradient(DType::kF32, n, step);
      for (TestMatrix* m : {&a, &b, &weights}) m->Fill(rng);
      const ConstMatrix first{weights.view().data, dtype, out, in, in};
      ops->ExpertGemm({.a = a.view(), .b = first, .transpose_b = true, .b_step = step, .c = product.view()}, rows_);
      ops->ExpertGemm({.a = b.view(), .b = first, .b_step = step, .c = back.view()}, rows_);
      ops->ExpertGradient(
          {.a = b.view(), .b = a.view(), .c = {gradient.view().data, DType::kF32, out, in, in}, .c_step = step}, rows_);
      TestMatrix sums(DType::kF32, rows_.slots, out, out + c.padding), more(dtype, rows_.slots, in);
      more.Fill(rng);
      const std::vector<float> held = more.Values();
      ops->ExpertGemm({.a = a.view(), .b = first, .transpose_b = true, .b_step = step, .c = sums.view()}, rows_);
      ops->ExpertGemm({.a = b.view(), .b = first, .b_step = step, .c = more.view(), .accumulate = true}, rows_);
      std::vector<double> expected, expected_back, expected_more, expected_gradient(static_cast<size_t>(n * out * in));
      for (int64_t slot = 0; slot < rows_.slots; ++slot) {
        const int32_t e = ExpertOf(slot);
        for (int64_t o = 0; o < out; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < in; ++i) {
            sum += static_cast<double>(a.Get(slot, i)) * static_cast<double>(weights.Get(e, o * in + i));
            expected_gradient[static_cast<size_t>((e * out + o) * in + i)] +=
                static_cast<double>(b.Get(slot, o)) * static_cast<double>(a.Get(slot, i));
          }
          expected.push_back(sum);
        }
        for (int64_t i = 0; i < in; ++i) {
          double sum = 0;
          for (int64_t o = 0; o < out; ++o) {
            sum += static_cast<double>(b.Get(slot, o)) * static_cast<double>(weights.Get(e, o * in + i));
          }
          expected_back.push_back(sum);
          expected_more.push_back(sum + static_cast<double>(held[expected_more.size()]));
        }
      }
      std::vector<float> got;
      for (int64_t e = 0; e < n; ++e) {
        for (int64_t i = 0; i < out * in; ++i) got.push_back(gradient.Get(e, i));
      }
      const double allowed = dtype == DType::kF32 ? 1e-6 : 4e-3;  // bf16 rounds by up to 2^-8
      SCOPED_TRACE(std::to_string(c.rows) + " rows" + (dtype == DType::kF32 ? "" : " of bf16"));
      EXPECT_LE(RelativeError(product.Values(), expected), allowed);
      EXPECT_LE(RelativeError(back.Values(), expected_back), allowed);
      EXPECT_LE(RelativeError(sums.Values(), expected), 1e-6);
      EXPECT_LE(RelativeError(more.Values(), expected_more), allowed);
      EXPECT_LE(RelativeError(got, expected_gradient), 1e-6);
      EXPECT_TRUE(product.PaddingIntact() && back.PaddingIntact() && sums.PaddingIntact());
      for (int64_t e = 0; e < n; ++e) {  // what lies between the experts' matrices is not touched
        for (int64_t i = out * in; i < step; ++i) ASSERT_TRUE(std::isnan(gradient.Get(e, i)));
      }
    }
  }
}

TEST_F(ExpertRowsTest, ProductsMatchTheDefinitionAtTheEdgesOfTiles) {
  Rng rng(NewSeed());
  TestOps ops(2);
  ExpertProducts({0, 1, 63, 0, 64, 65, 129}, 72, 264, rng).Check(ops, rng);
  ExpertProducts({257}, 192, 136, rng).Check(ops, rng);
}

// However many rows there are and wherever a row lies among those of its expert: it gets the same bits.
TEST_F(ExpertRowsTest, AProductsRowDoesNotDependOnTheOthers) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const RouterShape shape{.num_experts = 3, .chosen = 2};
  constexpr int64_t kRows = 210, kFewRows = 50, kIn = 72, kOut = 136;
  const std::vector<int32_t> experts = RandomExperts(rng, kRows, shape);
  for (const DType dtype : kDTypes) {
    for (const int64_t padding : {3, 8}) {
      TestMatrix x(dtype, kRows, kIn, kIn + padding), weights(dtype, 3 * kOut, kIn, kIn + padding);
      x.Fill(rng);
      weights.Fill(rng);
      const auto products_of = [&](int64_t first, int64_t end) {
        Sort(ops, {experts.begin() + first * shape.chosen, experts.begin() + end * shape.chosen}, shape);
        TestMatrix by_slot(dtype, rows_.slots, kIn, kIn + padding), out(dtype, rows_.slots, kOut, kOut + padding);
        Matrix from = x.view(), one = weights.view();
        from.data = static_cast<char*>(from.data) + static_cast<size_t>(first * from.stride) * SizeOf(dtype);
        from.rows = end - first;
        one.rows = kOut;
        ops->GatherRows(by_slot.view(), from, rows_);
        ops->ExpertGemm(
            {.a = by_slot.view(), .b = one, .transpose_b = true, .b_step = kOut * one.stride, .c = out.view()}, rows_);
        std::vector<std::vector<double>> by_choice;
        for (const int32_t slot : slot_of_) by_choice.push_back(Row(out, slot));
        return by_choice;
      };
      const auto all = products_of(0, kRows), few = products_of(kRows - kFewRows, kRows);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), all.end() - static_cast<std::ptrdiff_t>(few.size())));
    }
  }
}

TEST_F(ExpertRowsTest, NoRowsAreNothingToDo) {
  TestOps ops(2);
  const RouterShape shape{.num_experts = 3, .chosen = 2};
  for (const DType dtype : kDTypes) {
    Sort(ops, {}, shape);
    EXPECT_EQ(offsets_, (std::vector<int32_t>{0, 0, 0, 0}));
    TestMatrix none(dtype, 0, 16), weights(dtype, 3 * 16, 16), gradient(DType::kF32, 3 * 16, 16);
    ops->GatherRows(none.view(), none.view(), rows_);
    ops->ExpertGemm({.a = none.view(), .b = weights.view(), .b_step = 256, .c = none.view()}, rows_);
    ops->ExpertGradient(
        {.a = none.view(), .b = none.view(), .c = {gradient.view().data, DType::kF32, 16, 16, 16}, .c_step = 256},
        rows_);
    ops->CombineRows(none.view(), none.view(), {}, rows_);
    EXPECT_EQ(gradient.Values(), std::vector<float>(3 * 16 * 16, 0.0f));
  }
}

TEST_F(ExpertRowsTest, SwigluWeighsItsRows) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const RouterShape shape{.num_experts = 4, .chosen = 2};
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 8, 33}) {
      Sort(ops, RandomExperts(rng, 15, shape), shape);
      const std::vector<float> weights = RandomVector(rng, rows_.slots);
      TestMatrix gate_up(dtype, rows_.slots, 2 * cols, 2 * cols + 2), out(dtype, rows_.slots, cols, cols + 1);
      TestMatrix d_out(dtype, rows_.slots, cols), d_gate_up(dtype, rows_.slots, 2 * cols, 2 * cols + 3);
      gate_up.Fill(rng);
      d_out.Fill(rng);
      std::vector<float> d_weights(weights.size(), NAN);
      ops->ExpertSwigluForward(out.view(), gate_up.view(), weights.data(), 0, rows_);
      ops->ExpertSwigluBackward(d_gate_up.view(), d_weights.data(), d_out.view(), gate_up.view(), weights.data(), 0,
                                rows_);
      std::vector<double> expected, expected_gradient(static_cast<size_t>(rows_.slots * 2 * cols));
      std::vector<double> expected_d_weights(weights.size());
      for (int64_t slot = 0; slot < rows_.slots; ++slot) {
        const auto choice = static_cast<size_t>(choices_[static_cast<size_t>(slot)]);
        const auto w = static_cast<double>(weights[choice]);
        for (int64_t c = 0; c < cols; ++c) {
          const double g = gate_up.Get(slot, c), u = gate_up.Get(slot, cols + c), s = 1 / (1 + std::exp(-g));
          const double dy = d_out.Get(slot, c);
          expected.push_back(g * s * u * w);
          expected_d_weights[choice] += dy * g * s * u;
          expected_gradient[static_cast<size_t>(slot * 2 * cols + c)] = dy * w * u * s * (1 + g * (1 - s));
          expected_gradient[static_cast<size_t>(slot * 2 * cols + cols + c)] = dy * w * g * s;
        }
      }
      EXPECT_LE(MaxError(out.Values(), expected), RoundingError(dtype));
      EXPECT_LE(MaxError(d_gate_up.Values(), expected_gradient), RoundingError(dtype));
      EXPECT_LE(MaxError(d_weights, expected_d_weights), 1e-5);
      EXPECT_TRUE(out.PaddingIntact() && d_gate_up.PaddingIntact());
      const std::vector<float> before = d_gate_up.Values();
      ops->ExpertSwigluBackward(gate_up.view(), d_weights.data(), d_out.view(), gate_up.view(), weights.data(), 0,
                                rows_);
      EXPECT_EQ(gate_up.Values(), before) << "in place";
    }
  }
}

// A value at the limit has no gradient, as with torch.clamp from PyTorch 2.14 on, and NaN stays.
TEST_F(ExpertRowsTest, SwigluLimitsGatesAndWhatTheyMultiply) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const RouterShape shape{.num_experts = 4, .chosen = 2};
  constexpr float kLimit = 1.5f, kJustBeyond = 1.5078125f;  // exact in bf16
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 8, 33}) {
      Sort(ops, RandomExperts(rng, 15, shape), shape);
      const std::vector<float> weights = RandomVector(rng, rows_.slots);
      TestMatrix gate_up(dtype, rows_.slots, 2 * cols, 2 * cols + 2), out(dtype, rows_.slots, cols, cols + 1);
      TestMatrix d_out(dtype, rows_.slots, cols), d_gate_up(dtype, rows_.slots, 2 * cols, 2 * cols + 3);
      gate_up.Fill(rng, 2);
      d_out.Fill(rng);
      for (const float special : {kLimit, -kLimit, kJustBeyond, -kJustBeyond, 1e30f, -1e30f}) {
        for (const int64_t first : {int64_t{0}, cols}) {  // of gates, of what they multiply
          gate_up.Set(static_cast<int64_t>(rng() % 30),
                      first + static_cast<int64_t>(rng() % static_cast<uint64_t>(cols)), special);
        }
      }
      std::vector<float> d_weights(weights.size(), NAN);
      ops->ExpertSwigluForward(out.view(), gate_up.view(), weights.data(), kLimit, rows_);
      ops->ExpertSwigluBackward(d_gate_up.view(), d_weights.data(), d_out.view(), gate_up.view(), weights.data(),
                                kLimit, rows_);
      std::vector<double> expected, expected_gradient(static_cast<size_t>(rows_.slots * 2 * cols));
      std::vector<double> expected_d_weights(weights.size());
      for (int64_t slot = 0; slot < rows_.slots; ++slot) {
        const auto choice = static_cast<size_t>(choices_[static_cast<size_t>(slot)]);
        const auto w = static_cast<double>(weights[choice]);
        for (int64_t c = 0; c < cols; ++c) {
          const double gate = gate_up.Get(slot, c), up = gate_up.Get(slot, cols + c), limit = kLimit;
          const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit) + 1;
          const double s = 1 / (1 + std::exp(-1.702 * g)), dy = d_out.Get(slot, c);
          expected.push_back(g * s * u * w);
          expected_d_weights[choice] += dy * g * s * u;
          double* const gradient = &expected_gradient[static_cast<size_t>(slot * 2 * cols + c)];
          gradient[0] = gate < limit ? dy * w * u * s * (1 + 1.702 * g * (1 - s)) : 0;
          gradient[cols] = std::abs(up) < limit ? dy * w * g * s : 0;
        }
      }
      EXPECT_LE(MaxError(out.Values(), expected), RoundingError(dtype));
      EXPECT_LE(MaxError(d_gate_up.Values(), expected_gradient), RoundingError(dtype));
      EXPECT_LE(MaxError(d_weights, expected_d_weights), 1e-5);
      EXPECT_TRUE(out.PaddingIntact() && d_gate_up.PaddingIntact());

      const std::vector<float> before = d_gate_up.Values();
      TestMatrix in_place = gate_up;
      ops->ExpertSwigluBackward(in_place.view(), d_weights.data(), d_out.view(), in_place.view(), weights.data(),
                                kLimit, rows_);
      EXPECT_EQ(in_place.Values(), before) << "in place";

      gate_up.Set(3, 0, NAN);
      gate_up.Set(5, cols, NAN);
      ops->ExpertSwigluForward(out.view(), gate_up.view(), weights.data(), kLimit, rows_);
      ops->ExpertSwigluBackward(d_gate_up.view(), d_weights.data(), d_out.view(), gate_up.view(), weights.data(),
                                kLimit, rows_);
      EXPECT_TRUE(std::isnan(out.Get(3, 0)) && std::isnan(out.Get(5, 0)));
      EXPECT_EQ(d_gate_up.Get(3, 0), 0);
      EXPECT_EQ(d_gate_up.Get(5, cols), 0);
    }
  }
}

TEST(Experts, BitsDoNotDependOnThreads) {
  const uint64_t seed = NewSeed();
  const RouterShape shape{.num_experts = 9, .chosen = 3};
  constexpr int64_t kRows = 300, kWidth = 48;
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix logits(DType::kF32, kRows, shape.num_experts), x(DType::kBF16, kRows, kWidth);
    logits.Fill(rng);
    x.Fill(rng);
    Routed routed(kRows, shape);
    ops->RouterForward(routed.out(), logits.view(), shape);
    std::vector<int32_t> offsets(10), choices(routed.experts.size()), slot_of(choices.size());
    ops->SortChoices({offsets.data(), choices.data(), slot_of.data()}, routed.experts.data(), routed.weights.data(),
                     kRows, shape);
    const ExpertRows rows{.num_experts = shape.num_experts,
                          .chosen = shape.chosen,
                          .slots = kRows * shape.chosen,
                          .offsets = offsets.data(),
                          .choices = choices.data(),
                          .slot_of = slot_of.data()};
    TestMatrix gate_up(DType::kBF16, rows.slots, kWidth), act(DType::kBF16, rows.slots, kWidth / 2);
    TestMatrix gradient(DType::kF32, shape.num_experts * kWidth, kWidth / 2), out(DType::kBF16, kRows, kWidth);
    ops->GatherRows(gate_up.view(), x.view(), rows);
    ops->ExpertSwigluForward(act.view(), gate_up.view(), routed.weights.data(), 0, rows);
    ops->ExpertGradient({.a = gate_up.view(),
                         .b = act.view(),
                         .c = {gradient.view().data, DType::kF32, kWidth, kWidth / 2, kWidth / 2},
                         .c_step = kWidth * kWidth / 2},
                        rows);
    ops->CombineRows(out.view(), gate_up.view(), {}, rows);
    TestMatrix limited(DType::kBF16, rows.slots, kWidth / 2), d_gate_up(DType::kBF16, rows.slots, kWidth);
    std::vector<float> d_weights(routed.weights.size());
    ops->ExpertSwigluForward(limited.view(), gate_up.view(), routed.weights.data(), 0.5f, rows);
    ops->ExpertSwigluBackward(d_gate_up.view(), d_weights.data(), act.view(), gate_up.view(), routed.weights.data(),
                              0.5f, rows);
    std::vector<float> all = routed.weights;
    all.insert(all.end(), d_weights.begin(), d_weights.end());
    for (const TestMatrix* m : {&gradient, &out, &limited, &d_gate_up}) {
      const std::vector<float> values = m->Values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
}

}  // namespace
}  // namespace holdfast::kernels
