#pragma once
// The state of AdamW, which most of these tests store.

#include <array>

#include "framework/nn/state_layout.h"

namespace holdfast {

enum StateKind { kWeight, kExpAvg, kExpAvgSq };
inline constexpr int kStateKinds = 3;
inline constexpr std::array<const char*, kStateKinds> kStateKindNames{"weight", "exp_avg", "exp_avg_sq"};

inline StateLayout ThreePlanes(const ParameterLayout& layout) {
  return {layout,
          std::vector<std::vector<Plane>>(layout.parameters().size(), {{"weight"}, {"exp_avg"}, {"exp_avg_sq"}})};
}

}  // namespace holdfast
