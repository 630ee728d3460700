// Proves the attention of Hopper's warpgroups on an emulated Hopper GPU: head sizes 64 and 128 against the definition,
// at the edges of its tiles, with grouped heads, windows, documents, dropout and without causality.

#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/emulation/emulator.h"

namespace holdfast::kernels::attention_test {
namespace {

class AttentionHopperTest : public ::testing::TestWithParam<int64_t> {
 protected:
  AttentionHopperTest() { emulation::IsHopper() = true; }
  ~AttentionHopperTest() override { emulation::IsHopper() = false; }

  static void ExpectCorrectAttention(const AttentionShape& shape) {
    static Rng rng(NewSeed());
    TestOps ops(1);
    ExpectCorrect(ops, shape, DType::kBF16, rng, Alignment::kSixteenBytes);
  }
};
INSTANTIATE_TEST_SUITE_P(HeadSizes, AttentionHopperTest, ::testing::Values(64, 128));

TEST_P(AttentionHopperTest, MatchesTheDefinition) {
  const int64_t d = GetParam();
  for (const int64_t t : {1, 63, 64, 65, 129, 260}) ExpectCorrectAttention(Shape(1, t, 1, 1, d));
  ExpectCorrectAttention(Shape(2, 150, 4, 2, d));
}

TEST_P(AttentionHopperTest, OfWhatIsSeenOnly) {
  const int64_t d = GetParam();
  ExpectCorrectAttention(Windowed(Shape(1, 300, 1, 1, d), 50));
  ExpectCorrectAttention(Windowed(Shape(1, 200, 2, 1, d), 1));
  ExpectCorrectAttention(NotCausal(Shape(1, 140, 1, 1, d)));
  ExpectCorrectAttention(InDocuments(Shape(2, 200, 1, 1, d), {50, 3, 100}));
  ExpectCorrectAttention(InDocuments(Windowed(Shape(1, 170, 1, 1, d), 30), {50, 3, 61}));
}

TEST_P(AttentionHopperTest, DropoutIsKeyedByElement) {
  const int64_t d = GetParam();
  for (const int64_t t : {68, 101}) ExpectCorrectAttention(Shape(1, t, 2, 1, d, 0.3f));
  ExpectCorrectAttention(InDocuments(Shape(1, 132, 1, 1, d, 0.3f), {50, 3, 61}));
}

}  // namespace
}  // namespace holdfast::kernels::attention_test
