// Proves what a user sees of training a part of a model, or adapters beside it, with the real binary: equal bits in any
// world and after kills, what is not trained stays as it was and is in no checkpoint, adapters are saved, evaluated,
// sampled and merged, and what cannot be is refused with a clear error and nothing left.

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class FineTuneTest : public TinyRuns {
 protected:
  void SetUp() override {
    TinyRuns::SetUp();
    const CommandResult base = Train("base", {"--set", "train.steps=6"});
    ASSERT_EQ(base.exit_code, 0) << base.output;
  }

  /// Arguments of a run from the base.
  std::vector<std::string> FromBase(const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments{"--set", "train.init_from=" + Path("base/model")};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return arguments;
  }
  static std::vector<std::string> On(int workers, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--workers", std::to_string(workers)});
    return arguments;
  }
  void ExpectEqual(const std::string& a, const std::string& b) const {
    const CommandResult compared = RunHoldfast({"compare", Path(a), Path(b)});
    EXPECT_EQ(compared.exit_code, 0) << compared.output;
  }
  /// "loss 1.234 nats per token" and what follows.
  std::string Evaluate(const std::string& model) const {
    const CommandResult eval =
        RunHoldfast({"eval", Path(model), Path("valid.bin"), "--sequence-length", "32", "--dtype", "f32"});
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    const size_t loss = eval.output.find("loss");
    return loss == std::string::npos ? "" : eval.output.substr(loss);
  }
  CommandResult Export(const std::string& run, const std::string& out,
                       const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"ckpt", "export", Path(run), Path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHoldfast(arguments);
  }
};

const std::vector<std::string> kAdapters = {"lora.rank=3", "lora.alpha=6", "lora.dropout=0.1",
                                            "lora.targets=[attention, mlp]", "optimizer.lr=0.01"};
const std::vector<std::string> kPart = {"train.only=[\"blocks.1.*\", \"*norm*\"]", "train.freeze=\"blocks.1.mlp.*\""};

TEST_F(FineTuneTest, EqualBitsInAnyWorldAndAfterKills) {
  ASSERT_EQ(Train("first", FromBase(kAdapters)).exit_code, 0);
  std::vector<std::string> further = kAdapters;
  further.push_back("lora.init_from=" + Path("first/model"));
  for (const auto& [name, settings] :
       {std::pair{"adapters", kAdapters}, std::pair{"part", kPart}, std::pair{"further", further}}) {
    const std::string one = std::string(name) + "1", killed = std::string(name) + "killed";
    const CommandResult trained = Train(one, FromBase(settings));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    EXPECT_THAT(trained.output, HasSubstr(", trained "));
    for (const int workers : {3, 7}) {
      const std::string run = std::string(name) + std::to_string(workers);
      std::vector<std::string> arguments = On(workers, FromBase(settings));
      arguments.insert(arguments.end(), {"--set", "train.recompute=block", "--set", "batch.microbatches=2"});
      const CommandResult in_world = Train(run, arguments);
      EXPECT_EQ(in_world.exit_code, 0) << in_world.output;
      ExpectEqual(one, run);
    }
    std::vector<std::string> saving = settings;
    saving.emplace_back("checkpoint.every_steps=2");
    TrainUntilACheckpoint(killed, On(2, FromBase(saving)));
    TrainUntilACheckpoint(killed, On(3, FromBase(saving)));
    const CommandResult resumed = Train(killed, FromBase(saving));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("the newest that can be used"));
    ExpectEqual(one, killed);
  }
}

TEST_F(FineTuneTest, AMixtureOfExpertsToo) {
  ASSERT_EQ(Train("moe", WithExperts({"--set", "train.steps=4"})).exit_code, 0);
  // What belongs to no run comes out as it went in.
  std::string config = ReadAll(Path("moe/model/config.json"));
  const std::string no_padding = "\"pad_token_id\": null";
  ASSERT_NE(config.find(no_padding), std::string::npos) << config;
  config.replace(config.find(no_padding), no_padding.size(),
                 "\"pad_token_id\": 7,\n  \"output_router_logits\": true,\n  \"router_aux_loss_coef\": 0.02");
  WriteAll(Path("moe/model/config.json"), config);
  const auto from = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"--set", "train.init_from=" + Path("moe/model")};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return WithExperts(arguments);
  };
  const std::vector<std::string> adapters = {
      "lora.rank=2", "optimizer.lr=0.01",
      "lora.targets=[attention, experts, router, shared_expert, shared_expert_gate]"};
  for (const std::vector<std::string>& settings :
       {{"train.only=\"*.experts.*\""}, {"train.freeze=\"*.experts.?.*\""}, adapters}) {
    fs::remove_all(Path("1"));
    fs::remove_all(Path("3"));
    const CommandResult one = Train("1", On(1, from(settings))), three = Train("3", On(3, from(settings)));
    EXPECT_EQ(one.exit_code, 0) << one.output;
    EXPECT_EQ(three.exit_code, 0) << three.output;
    ExpectEqual("1", "3");
    if (settings != adapters) {
      EXPECT_EQ(ReadAll(Path("3/model/config.json")), config);
    }
  }
  EXPECT_THAT(ReadAll(Path("3/model/adapter_config.json")), HasSubstr("mlp.experts.gate_up_proj"));
  std::vector<std::string> still = adapters;
  still.insert(still.end(), {"lora.init_from=" + Path("3/model"), "optimizer.lr=0"});
  const CommandResult same = Train("same", On(3, from(still)));
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(ReadAll(Path("same/model/adapter_model.safetensors")), ReadAll(Path("3/model/adapter_model.safetensors")));
  std::vector<std::string> validate{"validate", Path("config.yaml")};
  for (const std::string& argument : from(adapters)) validate.push_back(argument);
  const CommandResult validated = RunHoldfast(validate);
  EXPECT_EQ(validated.exit_code, 0) << validated.output;
  EXPECT_THAT(validated.output, HasSubstr("auto: gather, as a part is frozen"));
  EXPECT_THAT(validated.output, Not(HasSubstr("a layer sends")));
  EXPECT_THAT(validated.output, HasSubstr(" adapters of PEFT for a qwen2_moe of transformers"));
  const CommandResult merged = Export("3", "merged", {"--merge"});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(ReadAll(Path("merged/config.json")), config);
  EXPECT_EQ(Evaluate("3"), Evaluate("merged"));
  EXPECT_NE(Evaluate("moe"), Evaluate("merged"));
  const auto expect = [&](std::vector<std::string> settings, const std::string& part) {
    settings.insert(settings.begin(), adapters.begin(), adapters.end());
    const CommandResult bad = Train("bad", from(settings));
    EXPECT_EQ(bad.exit_code, 2) << bad.output;
    EXPECT_THAT(bad.output, HasSubstr(part));
    EXPECT_FALSE(fs::exists(Path("bad/metrics.jsonl")));
  };
  expect({"lora.dropout=0.1"}, "adapters of experts and routers have no dropout");
  expect({"parallel.experts=move"}, "parallel.experts");
  expect({"lora.targets=[mlp]"}, "every MLP of this model is a mixture of experts; name experts");
}

TEST_F(FineTuneTest, AModelOfOurOwnFormToo) {
  const CommandResult base = Train("own", {"--set", "model.qk_norm=true"});
  ASSERT_EQ(base.exit_code, 0) << base.output;
  const auto from = [&](const std::string& targets) {
    return std::vector<std::string>{"--set", "train.init_from=" + Path("own/model"),
                                    "--set", "lora.rank=2",
                                    "--set", "lora.targets=" + targets,
                                    "--set", "optimizer.lr=0.01"};
  };
  const CommandResult one = Train("one", On(1, from("[attention, mlp]"))),
                      three = Train("three", On(3, from("[attention, mlp]")));
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_EQ(three.exit_code, 0) << three.output;
  ExpectEqual("one", "three");
  const CommandResult merged = Export("three", "merged", {"--merge"});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(Evaluate("three"), Evaluate("merged"));
  EXPECT_NE(Evaluate("own"), Evaluate("merged"));
  // Gate and up are one tensor in its files.
  const CommandResult gate = Train("gate", from("[gate_proj]"));
  EXPECT_EQ(gate.exit_code, 2) << gate.output;
  EXPECT_THAT(gate.output, HasSubstr("gate and up are one layer of this model"));
}

TEST_F(FineTuneTest, WhatIsNotTrainedStaysAsItWasAndIsInNoCheckpoint) {
  const CommandResult trained = Train("part", FromBase(kPart));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const CommandResult listed = RunHoldfast({"ckpt", "diff", Path("part"), Path("part")});
  EXPECT_EQ(listed.exit_code, 0) << listed.output;
  const CommandResult exported = Export("part", "exported");
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  EXPECT_EQ(ReadAll(Path("exported/model.safetensors")), ReadAll(Path("part/model/model.safetensors")));
  EXPECT_EQ(ReadAll(Path("exported/config.json")), ReadAll(Path("base/model/config.json")));
  EXPECT_NE(Evaluate("exported"), Evaluate("base"));
  uintmax_t bytes = 0, whole = 0;
  for (const auto& [run, sum] : {std::pair{"part", &bytes}, std::pair{"base", &whole}}) {
    for (const auto& file : fs::recursive_directory_iterator(Path(std::string(run) + "/checkpoints"))) {
      if (file.path().extension() == ".h5") *sum = std::max<uintmax_t>(*sum, file.file_size());
    }
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, whole * 3 / 5);
  // The same of a checkpoint in another place than the model that it needs.
  fs::rename(Path("base/model"), Path("moved"));
  const CommandResult lost = Export("part", "lost");
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.output, HasSubstr("--base DIR"));
  EXPECT_FALSE(fs::exists(Path("lost")));
  const CommandResult found = Export("part", "found", {"--base", Path("moved")});
  EXPECT_EQ(found.exit_code, 0) << found.output;
  EXPECT_EQ(ReadAll(Path("found/model.safetensors")), ReadAll(Path("part/model/model.safetensors")));
}

TEST_F(FineTuneTest, AdaptersAreSavedEvaluatedSampledAndMerged) {
  const CommandResult trained = Train("tuned", FromBase(kAdapters));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("sample:"));
  EXPECT_FALSE(fs::exists(Path("tuned/model/model.safetensors")));
  EXPECT_FALSE(fs::exists(Path("tuned/model/tokenizer.json"))) << "it is that of the base";
  const CommandResult exported = Export("tuned", "adapters");
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  for (const char* file : {"/adapter_model.safetensors", "/adapter_config.json"}) {
    EXPECT_EQ(ReadAll(Path("adapters") + file), ReadAll(Path("tuned/model") + file)) << file;
  }
  const CommandResult merged = Export("tuned", "merged", {"--merge"});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(Evaluate("tuned"), Evaluate("merged"));
  EXPECT_EQ(Evaluate("adapters"), Evaluate("merged"));
  EXPECT_NE(Evaluate("base"), Evaluate("merged"));
  const CommandResult sample = RunHoldfast({"sample", Path("tuned"), "--tokens", "10", "--prompt", "line"});
  EXPECT_EQ(sample.exit_code, 0) << sample.output;
  const CommandResult over = Export("tuned", "adapters", {"--merge", "--overwrite"});  // where the adapters were
  ASSERT_EQ(over.exit_code, 0) << over.output;
  for (const char* file : {"adapters/adapter_model.safetensors", "adapters/adapter_config.json"}) {
    EXPECT_FALSE(fs::exists(Path(file))) << file << " would count, not the model beside it";
  }
  const std::string base = ReadAll(Path("base/model/model.safetensors"));
  const CommandResult over_base = Export("tuned", "base/model", {"--merge"});
  EXPECT_EQ(over_base.exit_code, 2);
  EXPECT_THAT(over_base.output, HasSubstr("is the model that the run began with"));
  EXPECT_EQ(ReadAll(Path("base/model/model.safetensors")), base);
  const CommandResult no_adapters = Export("base", "no", {"--merge"});
  EXPECT_EQ(no_adapters.exit_code, 2);
  EXPECT_THAT(no_adapters.output, HasSubstr("the run had no adapters"));
  EXPECT_FALSE(fs::exists(Path("no")));
}

TEST_F(FineTuneTest, ARunBeginsWithAdapters) {
  ASSERT_EQ(Train("first", FromBase(kAdapters)).exit_code, 0);
  const auto from = [&](const std::string& adapters, const std::vector<std::string>& more) {
    std::vector<std::string> settings = kAdapters;
    settings.push_back("lora.init_from=" + Path(adapters));
    settings.insert(settings.end(), more.begin(), more.end());
    return FromBase(settings);
  };
  // One that learns nothing leaves what it began with.
  const CommandResult same = Train("same", On(3, from("first/model", {"optimizer.lr=0"})));
  ASSERT_EQ(same.exit_code, 0) << same.output;
  for (const char* file : {"/adapter_model.safetensors", "/adapter_config.json"}) {
    EXPECT_EQ(ReadAll(Path("same/model") + file), ReadAll(Path("first/model") + file)) << file;
  }
  ASSERT_EQ(Export("first", "exported").exit_code, 0);
  const CommandResult further = Train("further", from("first/model", {})),
                      elsewhere = Train("elsewhere", from("exported", {}));
  ASSERT_EQ(further.exit_code, 0) << further.output;
  ASSERT_EQ(elsewhere.exit_code, 0) << elsewhere.output;
  ExpectEqual("further", "elsewhere");
  EXPECT_NE(Evaluate("further"), Evaluate("first"));
  ASSERT_EQ(Train("other", {"--set", "train.steps=7"}).exit_code, 0);
  const auto expect = [&](const std::vector<std::string>& settings, int exit_code, const std::string& part) {
    const CommandResult trained = Train("bad", from("first/model", settings));
    EXPECT_EQ(trained.exit_code, exit_code) << trained.output;
    EXPECT_THAT(trained.output, HasSubstr(part));
    EXPECT_FALSE(fs::exists(Path("bad/metrics.jsonl")));
  };
  expect({"lora.rank=4"}, 2, "set lora.rank: 3, lora.alpha: 6, lora.rslora: false (adapter_config.json)");
  expect({"lora.targets=[mlp]"}, 2, ": set lora.targets: [attention, mlp]");
  expect({"lora.init_from=" + Path("base/model")}, 2, "lora.init_from: " + Path("base/model") + " holds no adapters");
  expect({"lora.init_from=" + Path("first")}, 2, "; name " + Path("first/model"));
  expect({"lora.init_digest=0123456789abcdef"}, 1, "these are others than the run began with");
  expect({"train.init_from=" + Path("other/model")}, 2, "the adapters are for another model");
}

// There is nothing to write its sample with.
TEST_F(FineTuneTest, AdaptersForAModelWithoutATokenizer) {
  std::string config = ReadAll(Path("base/model/config.json"));
  const std::string bytes = "\"holdfast_tokenizer\": \"bytes\"";
  const size_t key = config.find(bytes);
  ASSERT_NE(key, std::string::npos) << config;
  config.replace(key, bytes.size(), "\"holdfast_tokenizer\": \"\"");
  fs::remove(Path("base/model/tokenizer.json"));
  WriteAll(Path("base/model/config.json"), config);
  const CommandResult trained =
      Train("tuned", FromBase({"lora.rank=2", "data.tokenizer=bytes", "log.sample_bytes=20"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, Not(HasSubstr("sample:")));
}

// Its chat template is the one that the conversations were written with; that of the base is another, or none.
TEST_F(FineTuneTest, ATokenizerThatIsNotTheBasesGoesWithTheAdapters) {
  fs::create_directory(Path("own"));
  fs::copy(Path("base/model/tokenizer.json"), Path("own/tokenizer.json"));
  const std::string chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}";
  WriteAll(Path("own/chat_template.jinja"), chat_template);
  std::vector<std::string> settings = kAdapters;
  settings.push_back("data.tokenizer=" + Path("own/tokenizer.json"));
  ASSERT_EQ(Train("tuned", FromBase(settings)).exit_code, 0);
  fs::remove_all(Path("own"));  // what is needed of it lies with the adapters
  EXPECT_EQ(ReadAll(Path("tuned/model/chat_template.jinja")), chat_template);
  const auto chat = [&](const std::string& model) {
    return RunHoldfast({"sample", Path(model), "--chat", "--tokens", "5", "--prompt", "line"});
  };
  const CommandResult of_run = chat("tuned"), of_adapters = chat("tuned/model"), of_base = chat("base/model");
  EXPECT_EQ(of_run.exit_code, 0) << of_run.output;
  EXPECT_EQ(of_adapters.exit_code, 0) << of_adapters.output;
  EXPECT_EQ(of_base.exit_code, 2) << of_base.output;
  EXPECT_THAT(of_base.output, HasSubstr("has no chat template"));
  std::string every = "0";
  for (int token = 1; token < 256; ++token) every += ", " + std::to_string(token);
  WriteAll(Path("base/model/generation_config.json"), "{\"eos_token_id\": [" + every + "]}");
  EXPECT_NE(chat("tuned").output, of_run.output) << "what ends a text of the base ends it";
}

// Neither the run's sequences nor the model's longest are as long as these rows.
TEST_F(FineTuneTest, RowsOfConversationsAreReadAsTheyAre) {
  WriteAll(Path("base/model/chat_template.jinja"),
           "{% for m in messages %}{% generation %}{{ m.content }}|{% endgeneration %}{% endfor %}");
  WriteAll(Path("talks.jsonl"),
           R"({"messages": [{"role": "user", "content": "line"}, {"role": "assistant", "content": "story"}]})");
  for (const auto& [name, length] :
       {std::pair("talks.bin", "16"), std::pair("longer.bin", "24"), std::pair("too_long.bin", "48")}) {
    const CommandResult packed = RunHoldfast({"data", "pack", "--chat", Path("talks.jsonl"), "--tokenizer",
                                              Path("base/model"), "--out", Path(name), "--sequence-length", length});
    ASSERT_EQ(packed.exit_code, 0) << packed.output;
  }
  for (const char* model : {"base", "base/model"}) {
    const CommandResult eval = RunHoldfast({"eval", Path(model), Path("talks.bin")});
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    EXPECT_THAT(eval.output, HasSubstr("sequences   of 16 tokens, the rows of the data\n"));
  }
  const auto expect_refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    std::vector<std::string> command{"eval", Path("base")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CommandResult eval = RunHoldfast(command);
    EXPECT_EQ(eval.exit_code, 2) << eval.output;
    EXPECT_THAT(eval.output, AllOf(HasSubstr(why), Not(HasSubstr("loss  ")))) << "of a file before it";
  };
  const std::string two_lengths = Path("talks.bin") + " is packed into rows of 16 tokens, and " + Path("longer.bin") +
                                  " into rows of 24: evaluate each file by itself";
  expect_refused({Path("talks.bin"), Path("longer.bin")}, two_lengths);
  expect_refused({Path("talks.bin"), Path("longer.bin"), "--sequence-length", "24"}, two_lengths);
  expect_refused({Path("too_long.bin")},
                 "the model takes 32 at most: pack them again with --sequence-length 32 or less");
  expect_refused({Path("valid.bin"), Path("no.bin")}, Path("no.bin"));
  expect_refused({Path("talks.bin"), "--sequence-length", "24"}, "packed into rows of 16 tokens; set");
  const CommandResult trained =
      Train("tuned", FromBase({"data.train=" + Path("talks.bin"), "batch.sequence_length=16", "train.steps=3"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("training    3 steps of 64 tokens\nepochs      12\n"));
  EXPECT_THAT(trained.output, HasSubstr("\nsample, an answer to 'Hello!':\n"));
  const CommandResult on_text = Train("on_text", FromBase({"train.steps=1"}));
  EXPECT_THAT(on_text.output, HasSubstr("\nsample:\n")) << "nobody speaks there, though there is a template";
}

TEST_F(FineTuneTest, ATokenizerThatHasMovedWithTheBaseIsFound) {
  std::vector<std::string> settings = kAdapters;
  settings.push_back("data.tokenizer=" + Path("base/model/tokenizer.json"));
  ASSERT_EQ(Train("tuned", FromBase(settings)).exit_code, 0);
  fs::rename(Path("base/model"), Path("moved"));
  const CommandResult merged = Export("tuned", "merged", {"--merge", "--base", Path("moved")});
  EXPECT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(ReadAll(Path("merged/tokenizer.json")), ReadAll(Path("moved/tokenizer.json")));
}

TEST_F(FineTuneTest, AnotherBaseThanTheRunBeganWithIsRefused) {
  std::vector<std::string> settings = kAdapters;
  settings.emplace_back("checkpoint.every_steps=4");
  ASSERT_EQ(Train("tuned", FromBase(settings)).exit_code, 0);
  ASSERT_EQ(Train("other", {"--set", "train.steps=7"}).exit_code, 0);
  fs::rename(Path("base/model"), Path("base/was"));
  const CommandResult missing = RunHoldfast({"sample", Path("tuned"), "--tokens", "10"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output,
              AllOf(HasSubstr("adapter_config.json, base_model_name_or_path"), HasSubstr("--base DIR`")));
  fs::copy(Path("other/model"), Path("base/model"));
  const CommandResult sample = RunHoldfast({"sample", Path("tuned"), "--tokens", "10"});
  EXPECT_EQ(sample.exit_code, 2);
  EXPECT_THAT(sample.output, HasSubstr("the adapters are for another model"));
  const CommandResult merged = Export("tuned", "merged", {"--merge"});
  EXPECT_EQ(merged.exit_code, 1);
  EXPECT_THAT(merged.output, HasSubstr("this is another model than the run began with"));
  EXPECT_FALSE(fs::exists(Path("merged")));
  ASSERT_EQ(Train("small", {"--set", "train.steps=6", "--set", "model.num_layers=1"}).exit_code, 0);
  for (const auto& [base, exit_code, part] :
       {std::tuple{"other/model", 1, "this is another model than the run began with"},
        std::tuple{"small/model", 2, "--base DIR says where it is"}}) {
    const CommandResult adapters = Export("tuned", "adapters", {"--base", Path(base)});
    EXPECT_EQ(adapters.exit_code, exit_code) << adapters.output;
    EXPECT_THAT(adapters.output, HasSubstr(part));
    EXPECT_FALSE(fs::exists(Path("adapters")));
  }
  const CommandResult moved = Export("tuned", "adapters", {"--base", Path("base/was")});
  EXPECT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_THAT(ReadAll(Path("adapters/adapter_config.json")), HasSubstr(Path("base/was")));
  const std::string metrics = ReadAll(Path("tuned/metrics.jsonl"));
  settings.emplace_back("train.steps=14");
  const CommandResult resumed = Train("tuned", FromBase(settings));
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_THAT(resumed.output, HasSubstr("bring those back, or begin another run"));
  EXPECT_EQ(ReadAll(Path("tuned/metrics.jsonl")), metrics);
}

TEST_F(FineTuneTest, WhatCannotBeIsRefusedAndNothingIsLeft) {
  const auto expect = [&](const std::vector<std::string>& settings, int exit_code, const std::string& part) {
    const CommandResult trained = Train("bad", FromBase(settings));
    EXPECT_EQ(trained.exit_code, exit_code) << trained.output;
    EXPECT_THAT(trained.output, HasSubstr(part));
    EXPECT_FALSE(fs::exists(Path("bad/metrics.jsonl")));
  };
  expect({"train.only=\"blocks.7.*\""}, 2, "'blocks.7.*' matches no parameter");
  expect({"train.freeze=blocks.1.attention.qkv.weigth"}, 2, "did you mean 'blocks.1.attention.qkv.weight'");
  expect({"train.freeze=\"*\""}, 2, "nothing is left that could be trained");
  expect({"lora.rank=2", "train.only=\"*norm*\""}, 2, "with adapters nothing else is trained");
  expect({"lora.rank=2", "lora.targets=[q_prj]"}, 2, "did you mean 'q_proj'");
  expect({"lora.rank=2", "lora.targets=[]"}, 2, "no layer is named");
  expect({"lora.rank=2", "lora.alpha=0"}, 2, "--set lora.alpha=0: ");
  expect({"lora.rank=2", "lora.targets=[router]"}, 2, "--set lora.targets=[router]: router: this model has no experts");
  expect({"lora.rank=2", "train.init_from="}, 2, "train.init_from, which is not set");
  expect({"train.only=\"*norm*\"", "parallel.experts=move"}, 2, "parallel.experts");
  expect({"lora.rank=2", "train.init_digest=0123456789abcdef"}, 1, "this is another model than the run began with");
  expect({"lora.rank=2", "train.init_from=" + Path("nowhere")}, 2, "nowhere");
  const CommandResult imported =
      RunHoldfast({"ckpt", "import", Path("base/model"), Path("imported"), "--config", Path("config.yaml"), "--set",
                   "lora.rank=2", "--set", "train.init_from=" + Path("base/model")});
  EXPECT_EQ(imported.exit_code, 2);
  EXPECT_THAT(imported.output, HasSubstr("set train.init_from to the saved model instead"));
  EXPECT_FALSE(fs::exists(Path("imported")));
}

}  // namespace
}  // namespace holdfast::integration
