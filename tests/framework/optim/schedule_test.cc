// Proves the learning-rate schedules at their corners (warm-up, peak, decay, floor) and the clipping and bias scalars,
// against values worked out by hand.

#include "framework/optim/schedule.h"

#include <cmath>

#include "framework/optim/update.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr double kLr = 2.0;

double At(ScheduleKind kind, int64_t step, int64_t warmup = 10, int64_t decay = 0, double floor = 0.1,
          int64_t total = 110) {
  OptimizerConfig optimizer;
  optimizer.lr = kLr;
  const ScheduleConfig schedule{.name = kind, .warmup_steps = warmup, .decay_steps = decay, .min_lr_ratio = floor};
  return LearningRate(optimizer, schedule, step, total);
}

TEST(Schedule, WarmupIsLinearAndReachesThePeak) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kWsd}) {
    EXPECT_DOUBLE_EQ(At(kind, 1), kLr / 10);
    EXPECT_DOUBLE_EQ(At(kind, 5), kLr / 2);
    EXPECT_DOUBLE_EQ(At(kind, 10), kLr);
  }
}

TEST(Schedule, ConstantStays) { EXPECT_DOUBLE_EQ(At(ScheduleKind::kConstant, 110), kLr); }

TEST(Schedule, LinearIsHalfWayInTheMiddleAndAtTheFloorAtTheEnd) {
  EXPECT_NEAR(At(ScheduleKind::kLinear, 60), kLr * 0.55, 1e-12);
  EXPECT_NEAR(At(ScheduleKind::kLinear, 110), kLr * 0.1, 1e-12);
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndAtTheFloorAtTheEnd) {
  EXPECT_NEAR(At(ScheduleKind::kCosine, 60), kLr * 0.55, 1e-12);
  EXPECT_NEAR(At(ScheduleKind::kCosine, 35), kLr * (0.1 + 0.45 * (1 + std::sqrt(0.5))), 1e-12);
  EXPECT_NEAR(At(ScheduleKind::kCosine, 110), kLr * 0.1, 1e-12);
}

TEST(Schedule, DecayStepsEndTheDecayEarlyAndTheFloorHolds) {
  EXPECT_NEAR(At(ScheduleKind::kCosine, 30, 10, 20), kLr * 0.1, 1e-12);
  EXPECT_NEAR(At(ScheduleKind::kCosine, 81, 10, 20), kLr * 0.1, 1e-12);
}

TEST(Schedule, WsdIsStableUntilItsFinalDecay) {
  EXPECT_DOUBLE_EQ(At(ScheduleKind::kWsd, 51), kLr);
  EXPECT_DOUBLE_EQ(At(ScheduleKind::kWsd, 88), kLr);  // 22 = 20% of 110 steps of decay follow
  EXPECT_NEAR(At(ScheduleKind::kWsd, 99), kLr * 0.55, 1e-12);
  EXPECT_NEAR(At(ScheduleKind::kWsd, 110), kLr * 0.1, 1e-12);
}

TEST(UpdateScalars, ClipsOnlyAboveTheLimitAndCorrectsTheBias) {
  OptimizerConfig optimizer;
  optimizer.grad_clip_norm = 2.0;
  optimizer.beta1 = 0.5;
  optimizer.beta2 = 0.75;
  EXPECT_EQ(ComputeUpdateScalars(optimizer, 0.1, 1, 1.0f).grad_scale, 1.0f);
  const UpdateScalars clipped = ComputeUpdateScalars(optimizer, 0.1, 2, 8.0f);
  EXPECT_NEAR(clipped.grad_scale, 0.25, 1e-6);
  EXPECT_FLOAT_EQ(clipped.bias_correction1, 0.75f);
  EXPECT_FLOAT_EQ(clipped.bias_correction2_sqrt, std::sqrt(1 - 0.5625f));
  optimizer.grad_clip_norm = 0;
  EXPECT_EQ(ComputeUpdateScalars(optimizer, 0.1, 2, 8.0f).grad_scale, 1.0f);
}

}  // namespace
}  // namespace holdfast
