// Proves what counts after a run has gone back: against a list of all that was done, with every barrier kept.

#include "framework/base/branch.h"

#include <gtest/gtest.h>

#include <random>

namespace holdfast {
namespace {

TEST(Branch, WhatLiesBeyondABarrierIsGivenUpAndDoneAgain) {
  Branch branch;
  EXPECT_TRUE(branch.Includes(7, 50));
  branch.GoBack({.generation = 7, .step = 20});
  EXPECT_TRUE(branch.Includes(7, 20));
  EXPECT_FALSE(branch.Includes(7, 21));
  EXPECT_FALSE(branch.Includes(3, 21));
  EXPECT_TRUE(branch.Includes(8, 21));
}

TEST(Branch, ALaterBarrierFurtherBackReplacesThoseItImplies) {
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  branch.GoBack({.generation = 9, .step = 30});
  EXPECT_EQ(branch.barriers().size(), 2u);
  branch.GoBack({.generation = 8, .step = 40});
  EXPECT_EQ(branch.barriers().size(), 2u) << "it says nothing new";
  branch.GoBack({.generation = 12, .step = 10});
  EXPECT_EQ(branch.barriers(), (std::vector<Barrier>{{12, 10}}));
}

TEST(Branch, DropsNoBarrierThatMatters) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Branch branch, other;
    std::vector<Barrier> all;
    for (int i = 0; i < 8; ++i) {
      all.push_back({random() % 12, static_cast<int64_t>(random() % 12)});
      (i % 2 == 0 ? branch : other).GoBack(all.back());
    }
    branch.GoBack(other);
    for (uint64_t generation = 0; generation < 13; ++generation) {
      for (int64_t step = 0; step < 13; ++step) {
        bool included = true;
        for (const Barrier& b : all) included = included && (generation > b.generation || step <= b.step);
        ASSERT_EQ(branch.Includes(generation, step), included) << generation << " " << step;
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
