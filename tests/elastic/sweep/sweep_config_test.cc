// Proves what a sweep's file says, and that what is wrong in it is named, all of it, with its line.

#include "elastic/sweep/sweep_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGood[] =
    "sweep: {config: base.yaml, set: [\"train.steps=9\"], strategy: random, workers: 3, goal: maximize, cost: tokens}\n"
    "budget: {trials: 40, flops: 1e15}\n"
    "space:\n"
    "  optimizer.lr: {low: 1e-4, high: 1e-1, scale: log}\n"
    "  model.num_layers: {low: 2, high: 8}\n"
    "  optimizer.name: {choices: [adamw, muon]}\n"
    "  optimizer.momentum: {low: 0.8, high: 0.99, when: optimizer.name=muon}\n"
    "  width: {choices: [\"model.hidden_size=64 model.num_heads=2\", \"model.hidden_size=128 model.num_heads=4\"]}\n";

std::string Error(const std::string& text) { return std::string(ParseSweepConfig(text, "s.yaml").status().message()); }

TEST(SweepConfig, IsRead) {
  const auto config = ParseSweepConfig(kGood, "s.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->config, "base.yaml");
  EXPECT_THAT(config->overrides, ElementsAre("train.steps=9"));
  EXPECT_EQ(config->workers, 3);
  EXPECT_TRUE(config->maximize);
  EXPECT_EQ(config->cost, CostKind::kTokens);
  EXPECT_EQ(config->budget.trials, 40);
  EXPECT_EQ(config->budget.flops, 1e15);
  ASSERT_EQ(config->space.size(), 5U);
  EXPECT_EQ(config->space[0].scale, search::Scale::kLog);
  EXPECT_FALSE(config->space[0].integer);
  EXPECT_TRUE(config->space[1].integer) << "the key is an integer";
  EXPECT_EQ(config->space[3].condition->name, "optimizer.name");
  EXPECT_EQ(config->space[3].condition->value, "muon");
  EXPECT_EQ(config->space[4].choices.size(), 2U);
}

// They would be tried twice, and be drawn twice as often.
TEST(SweepConfig, ChoicesThatSetTheSameAreRefused) {
  const std::string top =
      "sweep: {config: b.yaml, strategy: grid}\n"
      "space:\n";
  EXPECT_EQ(
      Error(top +
            "  optimizer.lr: {choices: [1e-3, 1e-2, 0.001]}\n"
            "  batch.microbatches: {choices: [2, 4, +2]}\n"
            "  data.train: {choices: [a.bin, \"[a.bin]\"]}\n"
            "  size: {choices: [model.hidden_size=64 model.num_heads=2, model.num_heads=2 model.hidden_size=64]}\n"),
      "s.yaml:3: space.optimizer.lr.choices: '0.001' sets the same as '1e-3'; leave one of both out\n"
      "s.yaml:4: space.batch.microbatches.choices: '+2' sets the same as '2'; leave one of both out\n"
      "s.yaml:5: space.data.train.choices: '[a.bin]' sets the same as 'a.bin'; leave one of both out\n"
      "s.yaml:6: space.size: 'model.num_heads=2 model.hidden_size=64' sets the same as 'model.hidden_size=64 "
      "model.num_heads=2'; leave one of both out");
  EXPECT_EQ(Error(top + "  size: {choices: [model.hidden_size=64 model.num_heads=2, model.hidden_size=64]}\n"), "");
}

TEST(SweepConfig, HostsAreRead) {
  const std::string rest = "budget: {trials: 3}\nspace: {optimizer.lr: {low: 1e-3, high: 1e-1}}\n";
  const auto alone = ParseSweepConfig("sweep: {config: b.yaml, workers: 3}\n" + rest, "s.yaml");
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_EQ(alone->hosts.size(), 1U);
  EXPECT_EQ(alone->hosts[0].workers, 3);
  EXPECT_EQ(alone->listen, "127.0.0.1");
  const auto config = ParseSweepConfig(
      "sweep: {config: b.yaml, listen: 10.0.0.1}\n"
      "hosts:\n  node1: {workers: 4}\n  node2: {workers: 8, command: ssh node2, binary: /opt/holdfast}\n" +
          rest,
      "s.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->hosts.size(), 2U);
  EXPECT_EQ(config->workers, 12);
  EXPECT_EQ(config->hosts[1].name, "node2");
  EXPECT_EQ(config->hosts[1].command, "ssh node2");
  EXPECT_EQ(config->hosts[1].binary, "/opt/holdfast");
  EXPECT_EQ(IdentityText(*config), IdentityText(*alone)) << "where trials are decides nothing";
  EXPECT_EQ(Error("sweep: {config: b.yaml, workers: 2}\n"
                  "hosts:\n  n/1: {workers: 4}\n  n2: {workers: 0, command: ssh n2}\n  n3: {binary: x}\n" +
                  rest),
            "s.yaml:1: sweep.workers: the hosts say how many workers they have; leave one of both out\n"
            "s.yaml:2: hosts: sweep.listen is missing: the address of this machine at which its hosts reach it\n"
            "s.yaml:3: hosts.n/1: expected a name of letters, digits, dots, _ and -\n"
            "s.yaml:4: hosts.n2.workers: must be between 1 and 8192, got '0'\n"
            "s.yaml:5: hosts.n3: binary is that of a host with a command");
  EXPECT_THAT(Error("sweep: {config: b.yaml, listen: 0.0.0.0}\n" + rest), HasSubstr("one address of this machine"));
}

TEST(SweepConfig, EverythingThatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(Error("sweep: {config: b.yaml, strategie: random, parallel: 0}\n"
                  "budget: {trials: 3}\n"
                  "spaces: 1\n"
                  "space:\n"
                  "  optimizer.learning_rate: {low: 1, high: 2}\n"
                  "  optimizer.lr: {low: 1}\n"
                  "  train.compute_dtype: {low: 1, high: 2}\n"
                  "  size: {low: 1, high: 2}\n"
                  "  shape: {choices: [\"model.hiden_size=64\"]}\n"),
            "s.yaml:1: sweep.strategie: unknown key (did you mean 'strategy'?)\n"
            "s.yaml:1: sweep.parallel: must be between 1 and 1024, got '0'\n"
            "s.yaml:3: spaces: unknown section; there are sweep, budget, asha, space, hosts\n"
            "s.yaml:5: space.optimizer.learning_rate: the config has no such key\n"
            "s.yaml:6: space.optimizer.lr: low and high are both needed\n"
            "s.yaml:7: space.train.compute_dtype: is no number: say its choices\n"
            "s.yaml:8: space.size: is no key of the config (section.key), so its choices have to say KEY=VALUE\n"
            "s.yaml:9: space.shape: 'model.hiden_size=64' is not KEY=VALUE with a key of the config (did you mean "
            "'model.hidden_size'?)");
}

TEST(SweepConfig, ASearchNeedsALimitAndAGridDoesNot) {
  const std::string space = "space:\n  optimizer.lr: {low: 1e-4, high: 1e-1";
  EXPECT_THAT(Error("sweep: {config: b.yaml, strategy: random}\n" + space + "}\n"),
              HasSubstr("nothing limits the search"));
  EXPECT_EQ(Error("sweep: {config: b.yaml, strategy: grid}\n" + space + ", points: 3}\n"), "");
}

TEST(SweepConfig, KeysThatNothingReadsAreRefused) {
  const std::string random = "sweep: {config: b.yaml, strategy: random}\nbudget: {trials: 2}\n";
  EXPECT_EQ(Error(random + "space:\n  optimizer.lr: {low: 1e-4, high: 1e-1, points: 3}\n"),
            "s.yaml:4: space.optimizer.lr.points: is read with sweep.strategy: grid only; leave it out");
  EXPECT_EQ(Error(random + "asha: {rungs: 2}\nspace:\n  optimizer.lr: {low: 1e-4, high: 1e-1}\n"),
            "s.yaml:3: asha: is read with sweep.strategy: asha only; leave it out");
  EXPECT_EQ(Error(random + "space:\n  optimizer.lr: {choices: [1e-4, 1e-1], scale: log}\n"),
            "s.yaml:4: space.optimizer.lr: scale and points are of low and high");
}

TEST(SweepConfig, MoneyNeedsAPrice) {
  const std::string rest = "sweep: {config: b.yaml}\nspace:\n  optimizer.lr: {low: 1e-4, high: 1e-1}\n";
  EXPECT_THAT(Error(rest + "budget: {money: 3}\n"), HasSubstr("price_per_hour"));
  EXPECT_EQ(Error(rest + "budget: {money: 3, price_per_hour: 2}\n"), "");
}

TEST(SweepConfig, RungsAndStepsInTheSpaceContradictEachOther) {
  for (const char* key : {"train.steps", "train.epochs"}) {
    const std::string space = absl::StrCat("space:\n  ", key, ": {low: 10, high: 100}\n");
    EXPECT_THAT(Error("sweep: {config: b.yaml, strategy: asha}\nbudget: {trials: 9}\n" + space),
                AllOf(HasSubstr(absl::StrCat("s.yaml:4: space.", key)), HasSubstr("rungs")));
  }
}

TEST(SweepConfig, ATrialHasOneValueOfAKey) {
  const std::string top = "sweep: {config: b.yaml, strategy: grid}\nspace:\n";
  EXPECT_EQ(
      Error(top + "  optimizer.lr: {low: 1e-4, high: 1e-1, points: 3}\n"
                  "  size: {choices: [model.hidden_size=64 optimizer.lr=1e-3, model.hidden_size=128]}\n"),
      "s.yaml:4: space.size: sets optimizer.lr, as space.optimizer.lr does; a trial can have one value of it only");
  const std::string either =
      "  optimizer.name: {choices: [adamw, lion]}\n"
      "  adamw: {choices: [optimizer.lr=1e-3, optimizer.lr=1e-2], when: optimizer.name=adamw}\n"
      "  lion: {choices: [optimizer.lr=1e-4], when: optimizer.name=";
  EXPECT_EQ(Error(top + either + "lion}\n"), "");
  EXPECT_THAT(Error(top + either + "adamw}\n"), HasSubstr("s.yaml:5: space.lion: sets optimizer.lr, as space.adamw"));
}

TEST(SweepConfig, AGridHasTwoPointsOrMore) {
  EXPECT_THAT(Error("sweep: {config: b.yaml, strategy: grid}\n"
                    "space:\n  optimizer.lr: {low: 1e-4, high: 1e-1, points: 1}\n"),
              HasSubstr("space.optimizer.lr.points: must be between 2 and"));
  EXPECT_EQ(Error("sweep: {config: b.yaml, strategy: grid}\nspace:\n  optimizer.lr: {low: 1e-4, high: 1e-1}\n"),
            "s.yaml: space: optimizer.lr: a grid needs its `points`, as its values have no number");
}

// A trial would have the sweep's value, and its row the point's.
TEST(SweepConfig, KeysThatASweepSetsItselfAreNoDimensions) {
  const std::string top = "sweep: {config: b.yaml, strategy: grid}\nspace:\n";
  EXPECT_EQ(Error(top + "  run.name: {choices: [a, b]}\n"
                        "  checkpoint.directory: {choices: [a, b]}\n"
                        "  checkpoint.every: {choices: [auto, never]}\n"
                        "  elastic.workers: {low: 1, high: 4}\n"
                        "  elastic.min_workers: {low: 1, high: 4}\n"
                        "  elastic.max_workers: {low: 1, high: 4}\n"
                        "  size: {choices: [model.hidden_size=64 elastic.workers=2]}\n"),
            "s.yaml:3: space.run.name: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:4: space.checkpoint.directory: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:5: space.checkpoint.every: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:6: space.elastic.workers: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:7: space.elastic.min_workers: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:8: space.elastic.max_workers: a sweep sets this key of its trials itself; leave it out\n"
            "s.yaml:9: space.size: 'elastic.workers=2': a sweep sets this key of its trials itself; leave it out");
}

TEST(SweepConfig, EveryValueIsOneThatItsKeyMayHave) {
  const std::string top = "sweep: {config: b.yaml, strategy: random}\nbudget: {trials: 2}\nspace:\n";
  EXPECT_EQ(Error(top + "  optimizer.lr: {low: -5, high: 2000}\n"
                        "  model.num_layers: {low: 0, high: 3}\n"
                        "  optimizer.name: {choices: [adamw, 7]}\n"
                        "  batch.microbatches: {choices: [two, 4]}\n"
                        "  size: {choices: [model.hidden_size=64 model.num_heads=0]}\n"),
            "s.yaml:4: space.optimizer.lr.low: must be between 0 and 1000, got '-5'\n"
            "s.yaml:4: space.optimizer.lr.high: must be between 0 and 1000, got '2000'\n"
            "s.yaml:5: space.model.num_layers.low: must be between 1 and 4096, got '0'\n"
            "s.yaml:6: space.optimizer.name.choices: expected one of adamw, lion, muon, got '7'\n"
            "s.yaml:7: space.batch.microbatches.choices: expected an integer, got 'two'\n"
            "s.yaml:8: space.size: 'model.num_heads=0': must be between 1 and 1024, got '0'");
  EXPECT_EQ(Error(top + "  optimizer.lr: {low: 0, high: 1000}\n"
                        "  model.family: {choices: [gpt2, llama]}\n"
                        "  data.train: {choices: [a.bin, \"[a.bin, b.bin]\"]}\n"
                        "  start: {choices: [train.init_from=, train.init_from=a/model]}\n"
                        "  model.num_layers: {low: 1e0, high: 1e1}\n"),
            "");
}

TEST(SweepConfig, WhatDecidesTheTrialsIsInTheIdentityAndWhatDoesNotIsNot) {
  auto config = *ParseSweepConfig(kGood, "s.yaml");
  const std::string before = IdentityText(config);
  config.workers = 77;
  config.budget.trials = 5;
  config.attempts = 9;
  EXPECT_EQ(IdentityText(config), before);
  config.parallel = 77;
  EXPECT_NE(IdentityText(config), before);
  config = *ParseSweepConfig(kGood, "s.yaml");
  config.space[0].high = 0.2;
  EXPECT_NE(IdentityText(config), before);
}

}  // namespace
}  // namespace holdfast
