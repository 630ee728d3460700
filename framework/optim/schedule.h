#pragma once
// Learning-rate schedules, as pure functions of the step.

#include <cstdint>

#include "framework/config/config.h"

namespace holdfast {

/// The learning rate of step `step` of `total_steps`. Warm-up is linear and reaches optimizer.lr at step
/// warmup_steps. After it: constant; cosine (Loshchilov & Hutter 2017) or linear down to min_lr_ratio at the end of
/// decay_steps; wsd (Hu et al. 2024): constant, then linear to min_lr_ratio over the last decay_steps.
double LearningRate(const OptimizerConfig& optimizer, const ScheduleConfig& schedule, int64_t step,
                    int64_t total_steps);

}  // namespace holdfast
