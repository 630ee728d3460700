// Proves what each optimizer keeps of which parameter; that Muon's update is a near orthogonal matrix with the singular
// vectors of what was contributed, whatever its shape and size, of each matrix of a parameter by itself, with equal
// bits for any number of threads; and that a moving average follows the weights.

#include "framework/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace holdfast {
namespace {

ParameterLayout TinyLayout() {
  std::vector<ParameterSpec> parameters;
  parameters.push_back({.name = "embedding", .shape = {50, 8}, .decay = true});
  parameters.push_back({.name = "matrix", .shape = {24, 8}, .decay = true, .hidden = true});
  parameters.push_back({.name = "bias", .shape = {24}});
  return {std::move(parameters), {"unit"}};
}

std::vector<std::string> NamesOf(const std::vector<Plane>& planes) {
  std::vector<std::string> names;
  for (const Plane& plane : planes) names.push_back(plane.name);
  return names;
}

TEST(Optimizer, KeepsWhatItNeedsOfEachParameter) {
  using Names = std::vector<std::string>;
  const ParameterLayout layout = TinyLayout();
  const auto planes = [&](const OptimizerConfig& config, int parameter) {
    return NamesOf(LayoutOf(*MakeOptimizer(config), layout).PlanesOf(parameter));
  };
  const Names adamw = {"weight", "exp_avg", "exp_avg_sq"};
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(planes({}, p), adamw);
    EXPECT_EQ(planes({.name = OptimizerKind::kLion}, p), (Names{"weight", "exp_avg"}));
    EXPECT_EQ(planes({.name = OptimizerKind::kMuon}, p), p == 1 ? (Names{"weight", "momentum"}) : adamw);
  }
  EXPECT_EQ(planes({.name = OptimizerKind::kMuon, .ema_decay = 0.9}, 1), (Names{"weight", "momentum", "ema"}));
  const StateLayout state = LayoutOf(*MakeOptimizer({.name = OptimizerKind::kMuon, .ema_decay = 0.9}), layout);
  EXPECT_EQ(state.names(), (Names{"weight", "exp_avg", "exp_avg_sq", "ema", "momentum"}));
  EXPECT_EQ(state.elements(), 4 * 400 + 3 * 192 + 4 * 24);
  EXPECT_EQ(state.ChunkBytes(layout.chunks()[1]), 3u * 192 * 4);
  EXPECT_EQ(state.LargestChunkBytes(), 4u * 400 * 4);
}

TEST(Optimizer, PlanesBeginAsZeroOrAsTheWeight) {
  const ParameterLayout layout = TinyLayout();
  const StateLayout state = LayoutOf(*MakeOptimizer({.name = OptimizerKind::kLion, .ema_decay = 0.9}), layout);
  std::vector<float> values(3 * 24, 7.0f);
  for (size_t i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  BeginPlanes(state, layout.chunks()[2], absl::MakeSpan(values));
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(values[24 + i], 0.0f);
    EXPECT_EQ(values[48 + i], static_cast<float>(i));
  }
}

/// A matrix with singular values from `least` to 1, and the orthogonal one with its singular vectors: U S V^T, U V^T.
struct Known {
  std::vector<float> matrix, orthogonal;
};

Known MakeKnown(int64_t rows, int64_t cols, double least, double size) {
  std::mt19937 random(static_cast<unsigned>(rows * 1000 + cols));
  std::normal_distribution<double> normal;
  const int64_t rank = std::min(rows, cols);
  const auto basis = [&](int64_t n) {  // rank orthonormal vectors of n, by Gram and Schmidt
    std::vector<std::vector<double>> vectors;
    while (static_cast<int64_t>(vectors.size()) < rank) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = normal(random);
      for (int pass = 0; pass < 2; ++pass) {
        for (const std::vector<double>& u : vectors) {
          double dot = 0;
          for (size_t i = 0; i < v.size(); ++i) dot += u[i] * v[i];
          for (size_t i = 0; i < v.size(); ++i) v[i] -= dot * u[i];
        }
      }
      double norm = 0;
      for (const double x : v) norm += x * x;
      for (double& x : v) x /= std::sqrt(norm);
      vectors.push_back(std::move(v));
    }
    return vectors;
  };
  const auto u = basis(rows), v = basis(cols);
  Known known;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      double matrix = 0, orthogonal = 0;
      for (int64_t k = 0; k < rank; ++k) {
        const auto i = static_cast<size_t>(k);
        const double product = u[i][static_cast<size_t>(r)] * v[i][static_cast<size_t>(c)];
        orthogonal += product;
        matrix += product * size * (least + (1 - least) * static_cast<double>(k) / static_cast<double>(rank));
      }
      known.matrix.push_back(static_cast<float>(matrix));
      known.orthogonal.push_back(static_cast<float>(orthogonal));
    }
  }
  return known;
}

std::vector<float> UpdateOf(const std::vector<float>& matrix, int64_t rows, int64_t cols, int threads,
                            const std::vector<int64_t>& fused = {}) {
  const auto device = MakeCpuDevice(threads);
  const auto stream = device->CreateStream().value();
  const auto muon = MakeOptimizer({.name = OptimizerKind::kMuon});
  const ParameterSpec spec{.name = "w", .shape = {rows, cols}, .hidden = true, .fused = fused};
  std::vector<float> update = matrix;
  std::vector<double> workspace(static_cast<size_t>(muon->WorkspaceElements(spec) / 2 + 1));
  EXPECT_TRUE(muon->MakeUpdate(*device, *stream, spec, update.data(), reinterpret_cast<float*>(workspace.data())).ok());
  return update;
}

TEST(Muon, TheUpdateIsNearTheOrthogonalMatrix) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{40, 40}, {24, 100}, {100, 24}, {1, 7}, {300, 260}}) {
    for (const double size : {1e-6, 1.0, 1e4}) {
      const Known known = MakeKnown(rows, cols, 0.2, size);
      const std::vector<float> update = UpdateOf(known.matrix, rows, cols, 2);
      const double rms = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
      double dot = 0, difference = 0, norm = 0;
      for (size_t i = 0; i < update.size(); ++i) {
        const double direction = update[i] / rms;
        dot += direction * known.orthogonal[i];
        difference += std::pow(direction - known.orthogonal[i], 2);
        norm += std::pow(static_cast<double>(known.orthogonal[i]), 2);
      }
      // Five iterations bring singular values to between 0.68 and 1.14 (Jordan 2024), not to 1.
      EXPECT_LT(std::sqrt(difference / norm), 0.33) << rows << " x " << cols << " of size " << size;
      EXPECT_GT(dot / norm, 0.68);
      EXPECT_LT(dot / norm, 1.2);
    }
  }
}

TEST(Muon, MatricesBelowEachOtherHaveUpdatesOfTheirOwn) {
  std::vector<float> together, updates;
  for (const int64_t rows : {40, 10, 10, 90}) {
    const std::vector<float> matrix = MakeKnown(rows, 30, 0.2, static_cast<double>(rows)).matrix;
    const std::vector<float> update = UpdateOf(matrix, rows, 30, 1);
    together.insert(together.end(), matrix.begin(), matrix.end());
    updates.insert(updates.end(), update.begin(), update.end());
  }
  EXPECT_EQ(UpdateOf(together, 150, 30, 2, {40, 10, 10, 90}), updates);
  EXPECT_NE(UpdateOf(together, 150, 30, 2), updates);
}

TEST(Muon, TheUpdateHasTheSameBitsForAnyNumberOfThreads) {
  const Known known = MakeKnown(300, 260, 0.1, 1.0);
  const std::vector<float> expected = UpdateOf(known.matrix, 300, 260, 1);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(UpdateOf(known.matrix, 300, 260, threads), expected) << threads;
}

TEST(Muon, AMatrixOfZerosStaysOne) {
  for (const float x : UpdateOf(std::vector<float>(24 * 8), 24, 8, 1)) EXPECT_EQ(x, 0.0f);
}

/// The planes of a parameter, one after another, after a step.
std::vector<float> AfterAStep(const OptimizerConfig& config, const ParameterSpec& spec, float lr) {
  const auto device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  const auto optimizer = MakeOptimizer(config);
  const auto n = static_cast<size_t>(spec.shape.elements());
  const size_t planes = optimizer->PlanesOf(spec).size();
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> state(planes * n), gradient(n), update(n);
  for (std::vector<float>* values : {&state, &gradient, &update}) {
    for (float& x : *values) x = std::abs(normal(random));
  }
  PlaneRange range{.parameter = &spec, .n = spec.shape.elements(), .planes = {}};
  for (size_t p = 0; p < planes; ++p) range.planes.push_back(state.data() + p * n);
  range.gradient = gradient.data();
  range.update = update.data();
  optimizer->Apply(stream->ops(), range, {.lr = lr}, nullptr);
  return state;
}

TEST(Optimizer, AFactorOfAParameterIsThatOfTheLearningRate) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kMuon}) {
    const OptimizerConfig config{.name = kind, .weight_decay = 0.1, .ema_decay = 0.9};
    for (const bool hidden : {false, true}) {
      ParameterSpec spec{.name = "w", .shape = {5, 9}, .decay = true, .hidden = hidden};
      const std::vector<float> as_is = AfterAStep(config, spec, 0.5f), quarter = AfterAStep(config, spec, 0.125f);
      EXPECT_NE(as_is, quarter);
      spec.lr_factor = 0.25f;
      EXPECT_EQ(AfterAStep(config, spec, 0.5f), quarter) << static_cast<int>(kind) << hidden;
      spec.lr_factor = 1;
      spec.decay = false;
      EXPECT_NE(AfterAStep(config, spec, 0.5f), as_is);
    }
  }
}

TEST(Optimizer, AFactorOfTheDecayIsThatOfTheDecay) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kMuon}) {
    for (const bool hidden : {false, true}) {
      ParameterSpec spec{.name = "w", .shape = {5, 9}, .decay = true, .hidden = hidden};
      const std::vector<float> eight = AfterAStep({.name = kind, .weight_decay = 0.8}, spec, 0.5f);
      const OptimizerConfig one{.name = kind, .weight_decay = 0.1};
      EXPECT_NE(AfterAStep(one, spec, 0.5f), eight);
      spec.decay_factor = 8;
      EXPECT_EQ(AfterAStep(one, spec, 0.5f), eight) << static_cast<int>(kind) << hidden;
    }
  }
}

TEST(Optimizer, AFactorOfEpsilonIsThatOfEpsilon) {
  ParameterSpec spec{.name = "w", .shape = {5, 9}};
  const std::vector<float> half = AfterAStep({.eps = 0.5}, spec, 0.5f);
  EXPECT_NE(AfterAStep({.eps = 0.0625}, spec, 0.5f), half);
  spec.eps_factor = 8;
  EXPECT_EQ(AfterAStep({.eps = 0.0625}, spec, 0.5f), half);
}

TEST(Ema, FollowsTheNewWeights) {
  const auto device = MakeCpuDevice(1);
  const auto stream = device->CreateStream().value();
  const auto optimizer = MakeOptimizer({.name = OptimizerKind::kLion, .weight_decay = 0, .ema_decay = 0.75});
  const ParameterSpec spec{.name = "w", .shape = {3}};
  std::vector<float> weight = {1, 2, 3}, moment(3), average = weight, gradient = {1, -1, 0};
  PlaneRange range{.parameter = &spec, .n = 3, .planes = {weight.data(), moment.data(), average.data()}};
  range.gradient = gradient.data();
  optimizer->Apply(stream->ops(), range, {.lr = 0.5f}, nullptr);
  EXPECT_EQ(weight, (std::vector<float>{0.5f, 2.5f, 3.0f}));
  EXPECT_EQ(average, (std::vector<float>{0.875f, 2.125f, 3.0f}));
}

}  // namespace
}  // namespace holdfast
