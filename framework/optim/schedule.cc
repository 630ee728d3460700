#include "framework/optim/schedule.h"

#include <algorithm>
#include <numbers>

#include "kernels/portable_math.h"

namespace holdfast {
namespace {

/// How far through the decay, which follows step `before`, `step` is, in [0, 1].
double DecayProgress(int64_t step, int64_t before, int64_t length) {
  if (length <= 0) return step > before ? 1.0 : 0.0;
  return std::clamp(static_cast<double>(step - before) / static_cast<double>(length), 0.0, 1.0);
}

double DecayFactor(const ScheduleConfig& schedule, int64_t step, int64_t total_steps) {
  const double floor = schedule.min_lr_ratio;
  const int64_t until_end = total_steps - schedule.warmup_steps;
  const int64_t decay = schedule.decay_steps > 0 ? schedule.decay_steps : until_end;
  switch (schedule.name) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kLinear:
      return 1.0 - (1.0 - floor) * DecayProgress(step, schedule.warmup_steps, decay);
    case ScheduleKind::kCosine: {
      const double progress = DecayProgress(step, schedule.warmup_steps, decay);
      return floor + (1.0 - floor) * 0.5 * (1.0 + portable::SinCos(std::numbers::pi * progress).cosine);
    }
    case ScheduleKind::kWsd: {
      const int64_t length = schedule.decay_steps > 0 ? schedule.decay_steps : total_steps / 5;
      return 1.0 - (1.0 - floor) * DecayProgress(step, total_steps - length, length);
    }
  }
  return 1.0;
}

}  // namespace

double LearningRate(const OptimizerConfig& optimizer, const ScheduleConfig& schedule, int64_t step,
                    int64_t total_steps) {
  if (step <= schedule.warmup_steps) {
    return optimizer.lr * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  return optimizer.lr * DecayFactor(schedule, step, total_steps);
}

}  // namespace holdfast
