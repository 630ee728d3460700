#pragma once
// The words of the config file for each enum, in the order of the enum's values.

#include "absl/types/span.h"
#include "framework/config/config.h"

namespace holdfast {

/// All words an enum may have in a config; the argument only picks the enum.
absl::Span<const char* const> EnumNames(PositionKind);
absl::Span<const char* const> EnumNames(NormType);
absl::Span<const char* const> EnumNames(ActivationKind);
absl::Span<const char* const> EnumNames(RopeScaling);
absl::Span<const char* const> EnumNames(ComputeDType);
absl::Span<const char* const> EnumNames(RecomputeMode);
absl::Span<const char* const> EnumNames(OptimizerKind);
absl::Span<const char* const> EnumNames(ScheduleKind);
absl::Span<const char* const> EnumNames(DeviceKind);
absl::Span<const char* const> EnumNames(ArithmeticChoice);
absl::Span<const char* const> EnumNames(RouterScoreKind);
absl::Span<const char* const> EnumNames(RouterBalanceKind);
absl::Span<const char* const> EnumNames(GradientSumKind);
absl::Span<const char* const> EnumNames(Sharding);
absl::Span<const char* const> EnumNames(Transport);
absl::Span<const char* const> EnumNames(MirrorPlace);
absl::Span<const char* const> EnumNames(ExpertPlacement);
absl::Span<const char* const> EnumNames(CheckpointEvery);
absl::Span<const char* const> EnumNames(CheckpointCompression);

/// Name(PositionKind::kRope) is "rope".
template <class Enum>
const char* Name(Enum value) {
  return EnumNames(value)[static_cast<size_t>(value)];
}

}  // namespace holdfast
