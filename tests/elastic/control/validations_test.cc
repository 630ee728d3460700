#include "elastic/control/validations.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

/// At which step a run ends that is validated after every ten, with these losses; 0 = not early.
int64_t EndOf(const EarlyStopRule& rule, std::initializer_list<double> losses) {
  Validations validations(rule, {});
  int64_t step = 0;
  for (const double loss : losses) {
    validations.Add({step += 10, loss});
    if (validations.EndAfter(step).has_value()) return step;
  }
  return 0;
}

TEST(Validations, OneOfEachStepCounts) {
  Validations validations({}, {{10, 2.0}});
  EXPECT_FALSE(validations.Add({10, 1.0}));
  EXPECT_FALSE(validations.Add({5, 1.0})) << "a step before one that is known";
  EXPECT_TRUE(validations.Add({20, 1.5}));
  EXPECT_EQ(validations.Of(10), (ValidationResult{10, 2.0}));
  EXPECT_EQ(validations.Of(15), std::nullopt);
  EXPECT_FALSE(validations.Has(21));
  validations.GoBackTo(19);
  EXPECT_FALSE(validations.Has(20));
  EXPECT_EQ(validations.Of(20), std::nullopt);
  EXPECT_TRUE(validations.Has(10));
  validations.GoBackTo(0);
  EXPECT_FALSE(validations.Has(10));
}

TEST(Validations, ARunEndsWhenTheLossHasNotFallenForAsManyValidations) {
  EXPECT_EQ(EndOf({.patience = 1}, {3, 2, 1}), 0);
  EXPECT_EQ(EndOf({.patience = 1}, {3, 3}), 20) << "equal is not lower";
  EXPECT_EQ(EndOf({.patience = 2}, {3, 2, 2.5, 1.9, 2, 1.95}), 60) << "counted from the lowest";
  EXPECT_EQ(EndOf({.patience = 2}, {3, 3.5, 2.9, 3.5, 2.8, 3.5, 2.7}), 0) << "a lower one begins the count again";
  EXPECT_EQ(EndOf({.patience = 0}, {3, 3, 3, 3}), 0);
}

TEST(Validations, AFallOfLessThanMinDeltaIsNone) {
  EXPECT_EQ(EndOf({.patience = 2, .min_delta = 0.5}, {3, 2.75, 2.5}), 30);
  EXPECT_EQ(EndOf({.patience = 2, .min_delta = 0.5}, {3, 2.75, 2.4}), 0) << "the fall since the lowest counts";
}

TEST(Validations, NotANumberIsNoFall) {
  const double nan = std::nan("");
  EXPECT_EQ(EndOf({.patience = 2}, {3, nan, nan}), 30);
  EXPECT_EQ(EndOf({.patience = 2}, {nan, nan, nan}), 30);
  EXPECT_EQ(EndOf({.patience = 2}, {nan, 3, 2}), 0);
}

TEST(Validations, WhatIsGivenUpSaysNothingOfTheEnd) {
  Validations validations({.patience = 2}, {{10, 3.0}, {20, 2.0}, {30, 1.0}, {40, 2.5}});
  validations.GoBackTo(20);
  EXPECT_TRUE(validations.Add({30, 2.5}));
  EXPECT_FALSE(validations.EndAfter(30).has_value());
  EXPECT_TRUE(validations.Add({40, 2.25}));
  const auto stop = validations.EndAfter(40);
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->lowest, (ValidationResult{20, 2.0})) << "not the one of step 30 that was given up";
  EXPECT_EQ(stop->later, 2);
}

TEST(Validations, SaysWhichWasTheLowest) {
  Validations validations({.patience = 2}, {{10, 3.0}, {20, 2.0}, {30, 2.5}});
  EXPECT_FALSE(validations.EndAfter(30).has_value());
  validations.Add({40, 2.25});
  EXPECT_FALSE(validations.EndAfter(41).has_value()) << "steps were done since then";
  const auto stop = validations.EndAfter(40);
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->lowest, (ValidationResult{20, 2.0}));
  EXPECT_EQ(stop->last_fall, stop->lowest);
  EXPECT_EQ(stop->later, 2);
}

TEST(Validations, TheLowestNeedNotBeTheLastFall) {
  const Validations validations({.patience = 2, .min_delta = 0.5}, {{10, 3.0}, {20, 2.625}, {30, 2.75}});
  const auto stop = validations.EndAfter(30);
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->lowest, (ValidationResult{20, 2.625}));
  EXPECT_EQ(stop->last_fall, (ValidationResult{10, 3.0}));
  EXPECT_EQ(stop->later, 2);
}

}  // namespace
}  // namespace holdfast
