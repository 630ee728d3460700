// Proves that matrices are given to ranks evenly. That the updates have the bits of a world of one in any other is
// tests/framework/train/world_test.cc's.

#include "framework/parallel/whole_updates.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace holdfast {
namespace {

ParameterLayout Blocks(int count) {
  std::vector<ParameterSpec> parameters;
  parameters.push_back({.name = "embedding", .shape = {1000, 64}});
  for (int i = 0; i < count; ++i) {
    for (const auto& [name, rows, cols] : {std::tuple<const char*, int64_t, int64_t>{"qkv", 192, 64},
                                           {"out", 64, 64},
                                           {"up", 256, 64},
                                           {"down", 64, 256}}) {
      parameters.push_back({.name = std::to_string(i) + name, .shape = {rows, cols}, .hidden = true});
    }
    parameters.push_back({.name = std::to_string(i) + "norm", .shape = {64}});
  }
  return {std::move(parameters), {"unit"}};
}

TEST(WholeUpdates, MatricesAreSpreadEvenly) {
  const ParameterLayout layout = Blocks(12);
  const auto muon = MakeOptimizer({.name = OptimizerKind::kMuon});
  for (int size = 1; size <= 9; ++size) {
    const std::vector<int> owners = OwnersOfMatrices(layout, *muon, size);
    std::vector<int64_t> elements(static_cast<size_t>(size));
    for (size_t p = 0; p < owners.size(); ++p) {
      EXPECT_EQ(owners[p] >= 0, layout.parameters()[p].hidden);
      if (owners[p] >= 0) elements[static_cast<size_t>(owners[p])] += layout.parameters()[p].shape.elements();
    }
    const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
    EXPECT_LE(*most - *least, 2 * 256 * 64) << size;
  }
}

TEST(WholeUpdates, OfAdamWThereAreNone) {
  const ParameterLayout layout = Blocks(2);
  const auto adamw = MakeOptimizer({});
  for (const int owner : OwnersOfMatrices(layout, *adamw, 3)) EXPECT_EQ(owner, -1);
  EXPECT_EQ(WholeUpdateBytes(layout, *adamw, 3, 0.5), 0);
}

}  // namespace
}  // namespace holdfast
