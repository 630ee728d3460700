// Proves the products of experts by Hopper's warpgroups on an emulated Hopper GPU, for experts with rows at the edges
// of its tiles and without any: the three products, C in bf16 and fp32, written and added to, and that an element's
// bits depend neither on the other rows nor on the number of multiprocessors.

#include <cstring>

#include "tests/kernels/emulation/emulator.h"
#include "tests/kernels/experts_test_util.h"

namespace holdfast::kernels {
namespace {

class ExpertsHopperTest : public ::testing::Test {
 protected:
  ExpertsHopperTest() { emulation::IsHopper() = true; }
  ~ExpertsHopperTest() override {
    emulation::IsHopper() = false;
    emulation::Multiprocessors() = emulation::kFewMultiprocessors;
  }
};

TEST_F(ExpertsHopperTest, MatchTheDefinitionAtTheEdgesOfTiles) {
  Rng rng(NewSeed());
  TestOps ops(1);
  ExpertProducts({0, 1, 63, 0, 0, 64, 65, 129, 0}, 136, 264, rng).Check(ops, rng);
  ExpertProducts({127, 128}, 264, 136, rng).Check(ops, rng);
  ExpertProducts({257}, 192, 520, rng).Check(ops, rng);                        // a step's end is that of k
  ExpertProducts(std::vector<int32_t>(34, 2), 136, 264, rng).Check(ops, rng);  // two steps of a search
}

TEST_F(ExpertsHopperTest, ExpertsWithoutRowsHaveGradientsOfZero) {
  Rng rng(NewSeed());
  TestOps ops(1);
  ExpertProducts({0, 0, 0}, 136, 136, rng).Check(ops, rng);
}

TEST_F(ExpertsHopperTest, BitsDoNotDependOnMultiprocessorsNorOnOtherRows) {
  Rng rng(NewSeed());
  TestOps ops(1);
  ExpertProducts experts({70, 0, 150}, 200, 264, rng);
  const std::vector<float> expected = experts.Products(ops);
  for (const int multiprocessors : {1, 132}) {
    emulation::Multiprocessors() = multiprocessors;
    const std::vector<float> actual = experts.Products(ops);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << multiprocessors;
  }
  ExpertProducts others({5, 33}, 200, 264, rng);
  others.Take(1, 33, experts, 2);
  EXPECT_EQ(others.Outputs(ops, 1, 33), experts.Outputs(ops, 2, 33));
}

}  // namespace
}  // namespace holdfast::kernels
