// Every key says what it decides, and a config can be cut down to what decides one thing.

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "framework/config/config_table.h"
#include "framework/config/load.h"

namespace holdfast {
namespace {

TEST(Decides, IsSaidOfEveryKey) {
  Config config;
  for (const Section& section : ConfigTable(&config)) {
    for (const Field& field : section.fields) {
      EXPECT_NE(field.decides, Decides::kUnsaid) << section.name << "." << field.key;
      EXPECT_EQ(WhatDecides(absl::StrCat(section.name, ".", field.key)), field.decides);
    }
  }
  EXPECT_EQ(WhatDecides("model.nothing"), Decides::kUnsaid);
}

TEST(Decides, TheOrderOfSamplesDecidesBitsAndThreadsDoNot) {
  EXPECT_EQ(WhatDecides("data.shuffle"), Decides::kBits);
  EXPECT_EQ(WhatDecides("train.arithmetic"), Decides::kBits);
  EXPECT_EQ(WhatDecides("optimizer.name"), Decides::kBits);
  for (const char* key : {"ema_decay", "lr_factors", "no_decay", "layer_decay"}) {
    EXPECT_EQ(WhatDecides(absl::StrCat("optimizer.", key)), Decides::kBits) << key;
  }
  EXPECT_EQ(WhatDecides("train.epochs"), Decides::kContent) << "the same run as one of so many steps";
  EXPECT_EQ(WhatDecides("train.threads"), Decides::kHost);
  EXPECT_EQ(WhatDecides("parallel.sharding"), Decides::kLayout);
}

TEST(Decides, WhatIsKeptHasItsValueAndTheRestItsDefault) {
  Config config;
  config.run.seed = 7;
  config.model.family = "llama";
  config.model.num_layers = 5;
  config.model.norm = NormType::kRmsNorm;
  config.data.train = {"a.bin", "b.bin"};
  config.data.shuffle = !config.data.shuffle;
  config.optimizer.lr = 0.25;
  config.parallel.mirrors = 3;
  config.elastic.workers = 9;
  const Config bits = OnlyKeysThat({Decides::kBits}, config);
  Config expected;
  expected.run.seed = 7;
  expected.model.family = "llama";
  expected.model.num_layers = 5;
  expected.model.norm = NormType::kRmsNorm;
  expected.data.shuffle = config.data.shuffle;
  expected.optimizer.lr = 0.25;
  EXPECT_EQ(PrintConfig(bits), PrintConfig(expected));
  EXPECT_EQ(PrintConfig(OnlyKeysThat({Decides::kBits, Decides::kContent, Decides::kLayout, Decides::kHost}, config)),
            PrintConfig(config));
}

}  // namespace
}  // namespace holdfast
