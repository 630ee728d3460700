// Proves that runs are the same only if every bit is, up to the length of the shorter, and that the first difference is
// the one named. By runs that differ in one bit of one field of one step.
#include "framework/metrics/compare.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::vector<StepMetrics> MakeRun(int64_t steps) {
  std::vector<StepMetrics> run;
  for (int64_t step = 1; step <= steps; ++step) {
    StepMetrics m;
    m.step = step;
    m.loss = 3.0f / static_cast<float>(step);
    m.grad_norm = 1.0f / static_cast<float>(step);
    if (step % 2 == 0) m.state_digest = 1000 + static_cast<uint64_t>(step);
    run.push_back(m);
  }
  return run;
}

float FlipLastBit(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1u); }

TEST(CompareRuns, EqualUpToTheShorter) {
  for (const auto& [a, b] : {std::pair{MakeRun(10), MakeRun(7)}, std::pair{MakeRun(7), MakeRun(10)}}) {
    const auto result = CompareRuns(a, b);
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result->difference.has_value());
    EXPECT_EQ(result->steps_compared, 7);
    EXPECT_EQ(result->digests_compared, 3);
    EXPECT_THAT(Describe(*result), HasSubstr("equal: 7 steps and 3 digests are the same bits (the runs have "));
  }
}

TEST(CompareRuns, WallClockAndWorldDoNotCount) {
  std::vector<StepMetrics> b = MakeRun(4);
  b[1].time = 5;
  b[1].step_seconds = 7;
  b[1].world_size = 8;
  b[1].generation = 3;
  EXPECT_FALSE(CompareRuns(MakeRun(4), b)->difference.has_value());
}

TEST(CompareRuns, StatisticsOfModelsAreCompared) {
  std::vector<StepMetrics> a = MakeRun(3), b = a;
  for (auto* run : {&a, &b}) (*run)[1].figures = {{.name = "aux_loss", .values = {0.1}}};
  EXPECT_FALSE(CompareRuns(a, b)->difference.has_value());
  b[1].figures[0].values[0] = std::nextafter(0.1, 1);
  EXPECT_EQ(CompareRuns(a, b)->difference->field, "aux_loss");
  EXPECT_EQ(CompareRuns(a, b)->difference->step, 2);
}

// They were compared by their places: what stood behind one that a run lacks was not, or with another.
TEST(CompareRuns, AStatisticThatOnlyOneHasIsNamed) {
  std::vector<StepMetrics> a = MakeRun(3), b = a;
  a[1].figures = {{.name = "aux_loss", .values = {0.1}}, {.name = "load", .values = {1, 2}, .is_list = true}};
  b[1].figures = {{.name = "load", .values = {1, 2}, .is_list = true}, {.name = "z_loss", .values = {3}}};
  const auto result = CompareRuns(a, b);
  EXPECT_FALSE(result->difference.has_value());
  EXPECT_THAT(Describe(*result), HasSubstr("equal: 3 steps and 1 digest are the same bits\n"
                                           "only A has aux_loss: not compared\n"
                                           "only B has z_loss: not compared\n"));
  b[1].figures[0].values[1] = 3;
  EXPECT_EQ(CompareRuns(a, b)->difference->field, "load");
  EXPECT_THAT(Describe(*CompareRuns(a, b)), HasSubstr("only A has aux_loss"));
  b[1].figures.clear();
  EXPECT_THAT(Describe(*CompareRuns(a, b)), HasSubstr("only A has aux_loss, load: not compared\n"));
}

TEST(CompareRuns, OneBitOfEachFieldIsSeen) {
  std::vector<StepMetrics> loss = MakeRun(9), norm = MakeRun(9), digest = MakeRun(9);
  loss[4].loss = FlipLastBit(loss[4].loss);
  norm[4].grad_norm = FlipLastBit(norm[4].grad_norm);
  digest[5].state_digest = *digest[5].state_digest ^ 1;
  loss[8].grad_norm = norm[8].loss = digest[8].loss = 77;  // later, so not the one named

  const auto a = CompareRuns(MakeRun(9), loss);
  EXPECT_EQ(a->difference->field, "loss_bits");
  EXPECT_EQ(a->difference->step, 5);
  EXPECT_EQ(a->difference->value_a, "3f19999a");
  EXPECT_EQ(a->difference->value_b, "3f19999b");
  EXPECT_EQ(a->steps_compared, 4);
  EXPECT_EQ(Describe(*a),
            "different: step 5, loss_bits\n"
            "  A: 3f19999a          loss 0.600000024\n"
            "  B: 3f19999b          loss 0.600000083\n"
            "4 steps and 2 digests before it are the same bits\n");
  const auto of_norm = CompareRuns(MakeRun(9), norm);
  EXPECT_THAT(Describe(*of_norm), HasSubstr(absl::StrFormat("different: step 5, grad_norm_bits\n"
                                                            "  A: %-16s  grad norm %.9g\n"
                                                            "  B: %-16s  grad norm %.9g\n",
                                                            of_norm->difference->value_a, MakeRun(9)[4].grad_norm,
                                                            of_norm->difference->value_b, norm[4].grad_norm)));
  const auto c = CompareRuns(MakeRun(9), digest);
  EXPECT_EQ(c->difference->field, "state_digest");
  EXPECT_EQ(c->difference->step, 6);
  EXPECT_EQ(c->difference->value_a, "00000000000003ee");
}

TEST(CompareRuns, DigestThatOnlyOneHasIsNotCompared) {
  std::vector<StepMetrics> b = MakeRun(6);
  for (StepMetrics& m : b) m.state_digest = m.step == 2 ? m.state_digest : std::nullopt;
  const auto result = CompareRuns(MakeRun(6), b);
  EXPECT_FALSE(result->difference.has_value());
  EXPECT_EQ(result->digests_compared, 1);
}

TEST(CompareRuns, NonFiniteAndSignedZeroAreComparedAsBits) {
  std::vector<StepMetrics> a = MakeRun(2), b = MakeRun(2);
  a[0].loss = b[0].loss = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(CompareRuns(a, b)->difference.has_value());
  a[1].loss = 0.0f;
  b[1].loss = -0.0f;
  EXPECT_EQ(CompareRuns(a, b)->difference->step, 2);
}

TEST(CompareRuns, StepThatTheLongerLacksIsADifference) {
  std::vector<StepMetrics> late = MakeRun(9);
  late.erase(late.begin(), late.begin() + 2);
  const auto result = CompareRuns(MakeRun(5), late);
  EXPECT_EQ(result->difference->field, "step");
  EXPECT_EQ(result->difference->step, 1);
  EXPECT_EQ(result->difference->value_b, "none");
}

TEST(CompareRuns, ARunWithoutStepsShowsNothing) {
  EXPECT_EQ(CompareRuns({}, MakeRun(3)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CompareRuns(MakeRun(3), {}).status().message()), HasSubstr("second run"));
}

}  // namespace
}  // namespace holdfast
