// Proves that the length that a model is loaded for, which its rotary tables have, decides no bit of what it says.

#include "models/runtime/loaded_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/models/runtime/next_logits.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

// Of LongRoPE, whose angles follow from the length in config.json: 96, twice the original one.
TEST(LoadedModelTest, TheLengthOfItsTablesDecidesNoLogit) {
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  std::vector<std::vector<float>> logits;
  for (const int64_t sequence : {96, 48, 10}) {
    const auto loaded = LoadSavedModel(absl::StrCat(SourceDir(), "/tests/golden/tiny_phi4_mini"),
                                       {.compute_dtype = ComputeDType::kF32, .threads = 1, .sequence = sequence});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto next = NextLogits(**loaded, tokens);
    ASSERT_TRUE(next.ok()) << next.status();
    logits.push_back(*next);
    EXPECT_EQ(logits.back(), logits.front()) << "loaded for " << sequence << " tokens";
  }
}

}  // namespace
}  // namespace holdfast
