// Proves what a user sees of `holdfast ckpt`, with the real binary on a tiny model: what goes in comes out with the
// same bits, damage of any file is found and named, nothing is deleted that a run still needs, and errors say what to
// do.

#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "framework/base/process_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr char kFirst[] = "step-0000000000-g0";

void FlipBit(const fs::path& path, size_t at) {
  std::string bytes = ReadAll(path);
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  WriteAll(path, bytes);
}

/// Saved models by family and seed ("llama-2"), made when they are needed; each test imports them into directories of
/// its own.
class CkptTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new fs::path(fs::path(::testing::TempDir()) / ("ckpt_test_" + std::to_string(getpid())));
    fs::remove_all(*shared_);
    fs::create_directories(*shared_);
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += "line " + std::to_string(i * i % 97) + " of the story\n";
    WriteAll(*shared_ / "text.txt", text);
    ASSERT_EQ(RunHoldfast({"data", "pack", Shared("text.txt"), "--out", Shared("train.bin")}).exit_code, 0);
    for (const std::string family : {"gpt2", "llama"}) {
      WriteAll(*shared_ / (family + ".yaml"),
               "model: {family: " + family +
                   ", vocab_size: 256, num_layers: 1, hidden_size: 64, num_heads: 4,\n"
                   "        intermediate_size: 1536, max_sequence_length: 16}\n"  // matrices of two chunks
                   "data: {train: [" +
                   Shared("train.bin") +
                   "]}\n"
                   "batch: {sequence_length: 16, microbatch_size: 2}\n"
                   "train: {steps: 3}\n"
                   "log: {sample_bytes: 0}\n");
    }
  }
  static void TearDownTestSuite() {
    fs::remove_all(*shared_);
    delete shared_;
  }

  void SetUp() override {
    directory_ = *shared_ / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(directory_);
  }

  /// The directory of the saved model.
  static std::string Model(const std::string& name) {
    const size_t dash = name.find('-');
    if (!fs::exists(*shared_ / name)) {
      const CommandResult trained = RunHoldfast({"train", Shared(name.substr(0, dash) + ".yaml"), "--run-dir",
                                                 Shared(name), "--set", "run.seed=" + name.substr(dash + 1)});
      EXPECT_EQ(trained.exit_code, 0) << trained.output;
    }
    return Shared(name + "/model");
  }
  static std::string Shared(const std::string& name) { return (*shared_ / name).string(); }
  std::string Path(const std::string& name) const { return (directory_ / name).string(); }

  static CommandResult Ckpt(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ckpt");
    return RunHoldfast(arguments);
  }
  CommandResult Import(const std::string& model, const std::string& to) {
    const std::string family = model.substr(0, model.find('-'));
    return Ckpt({"import", Model(model), Path(to), "--config", Shared(family + ".yaml")});
  }
  void MustImport(const std::string& model, const std::string& to) {
    const CommandResult imported = Import(model, to);
    ASSERT_EQ(imported.exit_code, 0) << imported.output;
  }
  /// A claim on the checkpoints as the run that `owner` speaks of has left it.
  void Claim(const std::string& to, const ProcessId& process) {
    const nlohmann::json fence{{"format", "holdfast fence"},
                               {"epoch", 41},
                               {"owner", Describe(process) + ", run directory /runs/a"},
                               {"process", ToText(process)}};
    WriteAll(Path(to) + "/fence-0000000041.json", fence.dump());
  }

  static fs::path* shared_;
  fs::path directory_;
};

fs::path* CkptTest::shared_ = nullptr;

TEST_F(CkptTest, ExportGivesBackWhatImportTook) {
  for (const std::string family : {"gpt2", "llama"}) {
    SCOPED_TRACE(family);
    MustImport(family + "-1", family);
    const CommandResult exported = Ckpt({"export", Path(family), Path(family + "_out")});
    ASSERT_EQ(exported.exit_code, 0) << exported.output;
    for (const std::string file :
         {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      EXPECT_EQ(ReadAll(Path(family + "_out/" + file)), ReadAll(Model(family + "-1") + "/" + file)) << file;
    }
    const CommandResult half = Ckpt({"export", Path(family), Path(family + "_half"), "--dtype", "bf16"});
    ASSERT_EQ(half.exit_code, 0) << half.output;
    const auto size = [&](const std::string& out) { return fs::file_size(Path(out + "/model.safetensors")); };
    EXPECT_LT(size(family + "_half"), 0.55 * static_cast<double>(size(family + "_out")));
    const CommandResult eval =
        RunHoldfast({"eval", Path(family + "_half"), Shared("train.bin"), "--sequence-length", "16"});
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
  }
}

/// What tests/golden/make_export_golden.py has shown to load with transformers 4 and 5.
// With a learning rate of zero the average stays the weights; with another it lags behind them.
TEST_F(CkptTest, TheMovingAverageIsExported) {
  const auto loss_of = [&](const std::string& model) {
    const CommandResult eval = RunHoldfast({"eval", Path(model), Shared("train.bin"), "--sequence-length", "16"});
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    return eval.output.substr(eval.output.find("loss"));
  };
  for (const std::string lr : {"0", "0.02"}) {
    const CommandResult trained =
        RunHoldfast({"train", Shared("llama.yaml"), "--run-dir", Path("run" + lr), "--set", "optimizer.name=muon",
                     "--set", "optimizer.ema_decay=0.9", "--set", "optimizer.lr=" + lr});
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    const CommandResult shown = Ckpt({"show", Path("run" + lr)});
    EXPECT_THAT(shown.output, HasSubstr("state       weight, exp_avg, exp_avg_sq, ema, momentum\n"));
    const CommandResult weights = Ckpt({"export", Path("run" + lr), Path("weights" + lr)});
    ASSERT_EQ(weights.exit_code, 0) << weights.output;
    const CommandResult average = Ckpt({"export", Path("run" + lr), Path("average" + lr), "--ema"});
    ASSERT_EQ(average.exit_code, 0) << average.output;
    EXPECT_THAT(average.output, HasSubstr("averaged parameters of step 3"));
    EXPECT_EQ(loss_of("weights" + lr) == loss_of("average" + lr), lr == "0");
  }
  MustImport("llama-1", "plain");
  const CommandResult without = Ckpt({"export", Path("plain"), Path("nothing"), "--ema"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.output, HasSubstr("has no moving average of embedding.tokens.weight: its run had no "
                                        "optimizer.ema_decay"));
}

TEST_F(CkptTest, ARunBeginsWithAnImportOfItsConfigWithoutAWarning) {
  MustImport("llama-1", "ck");
  const CommandResult trained = RunHoldfast(
      {"train", Shared("llama.yaml"), "--run-dir", Path("run"), "--set", "checkpoint.directory=" + Path("ck")});
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr(kFirst));
  EXPECT_THAT(trained.output, Not(HasSubstr("is not the config that wrote the checkpoint")));
}

TEST_F(CkptTest, ACheckpointOfAnotherOptimizerIsRefusedByName) {
  MustImport("llama-1", "adamw");
  const CommandResult resumed = RunHoldfast({"train", Shared("llama.yaml"), "--run-dir", Path("run"), "--set",
                                             "checkpoint.directory=" + Path("adamw"), "--set", "optimizer.name=lion"});
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_THAT(resumed.output, HasSubstr("is of another optimizer: of embedding.tokens.weight it has weight, exp_avg, "
                                        "exp_avg_sq, this run's optimizer keeps weight, exp_avg"));
}

TEST_F(CkptTest, ExportsAreAsTransformersLoadsThem) {
  const std::string tests = SourceDir() + "/tests/";
  for (const auto& [family, tokenizer] : {std::pair("gpt2", "gpt2_style"), std::pair("llama", "llama3_style")}) {
    const std::string golden = tests + "golden/exported_" + family, name = Path(family);
    const std::string file = tests + "framework/data/golden/tokenizer_" + tokenizer + ".json";
    WriteAll(name + ".yaml", "data: {train: [" + Shared("train.bin") + "], tokenizer: " + file +
                                 "}\nbatch: {sequence_length: 16}\ntrain: {steps: 1}\n");
    const CommandResult imported = Ckpt({"import", golden, name, "--config", name + ".yaml"});
    ASSERT_EQ(imported.exit_code, 0) << imported.output;
    ASSERT_EQ(Ckpt({"export", name, name + "_out"}).exit_code, 0);
    for (const std::string saved :
         {"config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"}) {
      EXPECT_EQ(ReadAll(name + "_out/" + saved), ReadAll(golden + "/" + saved)) << saved;
    }
    EXPECT_EQ(ReadAll(name + "_out/tokenizer.json"), ReadAll(file));
    ASSERT_EQ(Ckpt({"export", name, name + "_bf16", "--dtype", "bf16"}).exit_code, 0);
    EXPECT_THAT(ReadAll(name + "_bf16/config.json"), HasSubstr("\"torch_dtype\": \"bfloat16\""));
  }
}

TEST_F(CkptTest, SettingsBesideTheTokenizerAreExported) {
  const std::string tokenizer = SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json";
  MustImport("llama-1", "ck");
  const CommandResult large = Ckpt({"export", Path("ck"), Path("out"), "--tokenizer", tokenizer});
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.output, HasSubstr("model.vocab_size is only 256"));
  EXPECT_FALSE(fs::exists(Path("out")));

  WriteAll(Path("in/tokenizer.json"), ReadAll(Model("llama-1") + "/tokenizer.json"));
  WriteAll(Path("in/tokenizer_config.json"), R"({"chat_template": "{{ x }}", "eos_token": "c", "auto_map": {}})");
  WriteAll(Path("in/chat_template.jinja"), "{{ x }}");
  const CommandResult exported = Ckpt({"export", Path("ck"), Path("out"), "--tokenizer", Path("in/tokenizer.json")});
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  EXPECT_THAT(ReadAll(Path("out/tokenizer_config.json")), HasSubstr("\"chat_template\": \"{{ x }}\""));
  EXPECT_THAT(ReadAll(Path("out/generation_config.json")), HasSubstr("\"eos_token_id\": 99"));
  EXPECT_EQ(ReadAll(Path("out/chat_template.jinja")), "{{ x }}");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("out"), "--overwrite", "--tokenizer", Path("in")}).exit_code, 0)
      << "its directory";
  WriteAll(Path("in/special_tokens_map.json"), R"({"eos_token": {"content": "a"}})");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("both"), "--tokenizer", Path("in")}).exit_code, 0);
  EXPECT_THAT(ReadAll(Path("both/generation_config.json")), HasSubstr("\"eos_token_id\": 97"));
  WriteAll(Path("in/tokenizer_config.json"), R"({"eos_token": "c", "added_tokens_decoder": {}})");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("newer"), "--tokenizer", Path("in")}).exit_code, 0);
  EXPECT_THAT(ReadAll(Path("newer/generation_config.json")), HasSubstr("\"eos_token_id\": 99")) << "as transformers";
  WriteAll(Path("in/tokenizer_config.json"), R"({"bos_token": null})");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("map"), "--tokenizer", Path("in/tokenizer.json")}).exit_code, 0);
  EXPECT_THAT(ReadAll(Path("map/generation_config.json")),
              AllOf(HasSubstr("\"bos_token_id\": null"), HasSubstr("\"eos_token_id\": 97")));
  EXPECT_THAT(ReadAll(Path("map/tokenizer_config.json")), HasSubstr("\"bos_token\": null"));
  WriteAll(Path("in/generation_config.json"), R"({"temperature": 0.5, "eos_token_id": 98})");
  ASSERT_EQ(
      Ckpt({"export", Path("ck"), Path("map"), "--overwrite", "--tokenizer", Path("in/tokenizer.json")}).exit_code, 0);
  EXPECT_EQ(ReadAll(Path("map/generation_config.json")),
            "{\n  \"temperature\": 0.5,\n  \"eos_token_id\": [\n    97,\n    98\n  ],\n  \"bos_token_id\": null\n}\n");
  WriteAll(Path("in/added_tokens.json"), R"({"a": 97})");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("added"), "--tokenizer", Path("in")}).exit_code, 0);
  EXPECT_EQ(ReadAll(Path("added/added_tokens.json")), R"({"a": 97})");
  const CommandResult refused = Ckpt({"export", Path("ck"), Path("out")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("there is something already; name a new directory, or pass --overwrite"));
  EXPECT_TRUE(fs::exists(Path("out/chat_template.jinja")));
  WriteAll(Path("mine/config.json"), "{}");
  WriteAll(Path("mine/tokenizer.json"), "{}");
  const CommandResult mine = Ckpt({"export", Path("ck"), Path("mine"), "--overwrite"});
  EXPECT_EQ(mine.exit_code, 1);
  EXPECT_THAT(mine.output, HasSubstr("mine is no model; name a new directory"));
  EXPECT_EQ(ReadAll(Path("mine/config.json")) + ReadAll(Path("mine/tokenizer.json")), "{}{}");
  const CommandResult in_a_file = Ckpt({"export", Path("ck"), Path("mine/config.json/out")});
  EXPECT_EQ(in_a_file.exit_code, 2);
  EXPECT_THAT(in_a_file.output, AllOf(HasSubstr("mine/config.json: not a directory"), Not(HasSubstr("warning"))));
  WriteAll(Path("out/chat_template.jinja"), "{{ mine }}");
  const CommandResult over = Ckpt({"export", Path("ck"), Path("out"), "--overwrite"});  // with the run's own tokenizer
  ASSERT_EQ(over.exit_code, 0) << over.output;
  EXPECT_THAT(over.output, HasSubstr("out/chat_template.jinja, which was there, is kept"));
  EXPECT_THAT(ReadAll(Path("out/tokenizer_config.json")), Not(HasSubstr("chat_template")));
  EXPECT_EQ(ReadAll(Path("out/chat_template.jinja")), "{{ mine }}");
  // A tokenizer that brings its own, though not in a file of that name.
  WriteAll(Path("own/tokenizer.json"), ReadAll(Model("llama-1") + "/tokenizer.json"));
  WriteAll(Path("own/tokenizer_config.json"), R"({"chat_template": "{{ own }}"})");
  const CommandResult own = Ckpt({"export", Path("ck"), Path("out"), "--overwrite", "--tokenizer", Path("own")});
  ASSERT_EQ(own.exit_code, 0) << own.output;
  EXPECT_THAT(own.output, Not(HasSubstr("is kept")));
  EXPECT_FALSE(fs::exists(Path("out/chat_template.jinja")));
}

// As where tokens were added, and the embedding was not made larger; Gemma 3 1B is published so.
TEST_F(CkptTest, AddedTokensMayBeBeyondTheModelWhereNoTextHasThem) {
  fs::copy(Model("llama-1"), Path("more"));
  nlohmann::json tokenizer = nlohmann::json::parse(ReadAll(Model("llama-1") + "/tokenizer.json"));
  tokenizer["added_tokens"].push_back({{"id", 256}, {"content", "<image>"}, {"special", true}});
  WriteAll(Path("more/tokenizer.json"), tokenizer.dump());
  std::string config = ReadAll(Path("more/config.json"));
  WriteAll(Path("more/config.json"), config.replace(config.find("holdfast_tokenizer"), 18, "_name_or_path"));
  const auto sample = [&](const std::string& prompt) {
    return RunHoldfast({"sample", Path("more"), "--prompt", prompt, "--tokens", "1"});
  };
  EXPECT_EQ(sample("an image").exit_code, 0);
  const CommandResult refused = sample("an <image>");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("token 256, \"<image>\", for which the model has no embedding"));
  WriteAll(Path("questions.jsonl"), R"({"context": "<image>", "choices": ["a", "b"], "answer": 0})");
  const CommandResult question = RunHoldfast({"eval", Path("more"), Path("questions.jsonl")});
  EXPECT_NE(question.exit_code, 0);
  EXPECT_THAT(question.output, HasSubstr("for which the model has no embedding"));
  WriteAll(Path("image.txt"), "an <image> of a house");
  const CommandResult packed =
      RunHoldfast({"data", "pack", Path("image.txt"), "--tokenizer", Path("more"), "--out", Path("image.bin")});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  const CommandResult loss = RunHoldfast({"eval", Path("more"), Path("image.bin"), "--sequence-length", "4"});
  EXPECT_EQ(loss.exit_code, 2);
  EXPECT_THAT(loss.output, HasSubstr("image.bin: the text has token 256, \"<image>\", for which the model has no "));

  // Programs that load what is exported look for what is named there in the model.
  WriteAll(Path("more/tokenizer_config.json"), R"({"eos_token": "<image>", "bos_token": "<image>"})");
  MustImport("llama-1", "ck");
  ASSERT_EQ(Ckpt({"export", Path("ck"), Path("out"), "--tokenizer", Path("more")}).exit_code, 0);
  for (const char* file : {"out/config.json", "out/generation_config.json"}) {
    EXPECT_THAT(ReadAll(Path(file)), AllOf(HasSubstr("\"bos_token_id\": null"), HasSubstr("\"eos_token_id\": null")));
  }
  EXPECT_THAT(ReadAll(Path("out/tokenizer_config.json")), HasSubstr("\"eos_token\": \"<image>\""));
}

TEST_F(CkptTest, ATokenizerWithMoreTokensThanTheModelIsRefused) {
  fs::copy(Model("llama-1"), Path("more"));
  std::string tokenizer = ReadAll(Model("llama-1") + "/tokenizer.json");
  const std::string prefix = R"({"single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {"x": {"ids": [256]}}})";
  fs::remove(Path("more/tokenizer.json"));
  WriteAll(Path("more/tokenizer.json"), tokenizer.insert(1, "\"post_processor\": " + prefix + ","));
  const CommandResult beyond = RunHoldfast({"sample", Path("more"), "--prompt", "a", "--tokens", "1"});
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_THAT(beyond.output, HasSubstr("beyond the vocabulary of 256"));
  const std::string large = SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json";
  WriteAll(Path("more/tokenizer.json"), ReadAll(large));
  std::string config = ReadAll(Path("more/config.json"));
  WriteAll(Path("more/config.json"), config.replace(config.find("holdfast_tokenizer"), 18, "_name_or_path"));
  const CommandResult result = RunHoldfast({"sample", Path("more"), "--prompt", "a", "--tokens", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("model.vocab_size is only 256"));
}

TEST_F(CkptTest, ListShowAndDigestAgree) {
  MustImport("gpt2-1", "ck");
  const CommandResult list = Ckpt({"list", Path("ck")});
  EXPECT_EQ(list.exit_code, 0) << list.output;
  EXPECT_THAT(list.output, HasSubstr("imported"));
  EXPECT_THAT(list.output, HasSubstr(" complete\n"));
  EXPECT_THAT(list.output, HasSubstr("ckpt verify --all reads their bytes"));
  std::string digest = Ckpt({"digest", Path("ck")}).output;
  ASSERT_THAT(digest, MatchesRegex("[0-9a-f]{16}\n"));
  digest.pop_back();
  const std::string json = Ckpt({"list", Path("ck"), "--json"}).output;
  EXPECT_THAT(json, HasSubstr("\"state_digest\": \"" + digest + "\""));
  EXPECT_THAT(json, HasSubstr("\"name\": \"" + std::string(kFirst) + "\""));

  const CommandResult show = Ckpt({"show", Path("ck"), "--step", "0"});
  EXPECT_EQ(show.exit_code, 0) << show.output;
  EXPECT_THAT(show.output, HasSubstr(digest));
  EXPECT_THAT(show.output, HasSubstr("blocks.0.mlp.up.weight"));
  EXPECT_THAT(show.output, HasSubstr("[1536, 64]"));
  EXPECT_EQ(Ckpt({"digest", Path("ck/") + kFirst}).output, digest + "\n");
  const std::string config = Ckpt({"show", Path("ck"), "--config"}).output;
  EXPECT_THAT(config, HasSubstr("intermediate_size: 1536"));
  EXPECT_THAT(config, Not(HasSubstr(digest)));
}

// The matrix of 64 x 1536 has chunks of 42 rows and 22.
TEST_F(CkptTest, ShorterChunksAreNotFilledUp) {
  const CommandResult trained =
      RunHoldfast({"train", Shared("llama.yaml"), "--run-dir", Path("run"), "--set", "checkpoint.compression=none"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(
      Ckpt({"show", Path("run")}).output,
      ::testing::ContainsRegex("values [0-9.]+ [KM]iB stored in [0-9.]+ [KM]iB, 0 of [0-9]+ pieces compressed"));
}

TEST_F(CkptTest, StatisticsAreThoseOfTheValues) {
  MustImport("gpt2-1", "ck");
  const CommandResult stats = Ckpt({"show", Path("ck"), "--stats", "--tensor", "final_norm.weight"});
  ASSERT_EQ(stats.exit_code, 0) << stats.output;
  // Near one after three steps; moments are zero after an import.
  EXPECT_THAT(stats.output, ::testing::ContainsRegex("weight +0\\.99[0-9]+ +1(\\.00[0-9]+)? "));
  EXPECT_THAT(stats.output, ::testing::ContainsRegex("exp_avg_sq +0 +0 +0 +0 +64 +0 +0"));
  const CommandResult all = Ckpt({"show", Path("ck"), "--stats", "--threads", "1"});
  EXPECT_THAT(all.output, HasSubstr("blocks.0.mlp.down.weight"));
  EXPECT_EQ(all.exit_code, 0);
}

TEST_F(CkptTest, DamageOfAnyFileIsFoundAndNamed) {
  for (const std::string file : {"manifest.json", "shard-0-of-1.h5", "shard-0-of-1.index", "model.h5"}) {
    SCOPED_TRACE(file);
    fs::remove_all(directory_);
    MustImport("llama-1", "ck");
    ASSERT_EQ(Ckpt({"verify", Path("ck")}).exit_code, 0);
    const fs::path path = directory_ / "ck" / kFirst / file;
    FlipBit(path, fs::file_size(path) / 2);
    const CommandResult flipped = Ckpt({"verify", Path("ck"), "--all"});
    EXPECT_EQ(flipped.exit_code, 1) << flipped.output;
    EXPECT_THAT(flipped.output, HasSubstr(file));
    fs::remove(path);
    const CommandResult missing = Ckpt({"verify", Path("ck")});
    EXPECT_EQ(missing.exit_code, 1) << missing.output;
    EXPECT_THAT(missing.output, HasSubstr(file == "manifest.json" ? "no manifest" : file));
  }
}

TEST_F(CkptTest, DamagedValuesAreNeverExported) {
  MustImport("llama-1", "ck");
  const fs::path shard = directory_ / "ck" / kFirst / "shard-0-of-1.h5";
  const std::string good = ReadAll(shard);
  int refused = 0;
  for (size_t at = good.size() - 100; at > good.size() / 2; at -= good.size() / 20) {
    WriteAll(shard, good);
    FlipBit(shard, at);
    const CommandResult exported = Ckpt({"export", Path("ck"), Path("out")});
    if (exported.exit_code == 0) {  // between two pieces: no value
      EXPECT_EQ(ReadAll(Path("out/model.safetensors")), ReadAll(Model("llama-1") + "/model.safetensors"));
      fs::remove_all(Path("out"));
      continue;
    }
    ++refused;
    EXPECT_EQ(exported.exit_code, 1);
    EXPECT_THAT(exported.output, HasSubstr("shard-0-of-1.h5"));
    EXPECT_FALSE(fs::exists(Path("out/model.safetensors")));
  }
  EXPECT_GT(refused, 0);
}

/// The run whose checkpoints the next tests look at: three, of steps 2, 4 and 6.
void TrainInParts(const std::string& config, const std::string& run) {
  for (const std::string steps : {"2", "4", "6"}) {
    const CommandResult trained =
        RunHoldfast({"train", config, "--run-dir", run, "--set", "train.steps=" + steps, "--set",
                     "schedule.name=constant", "--set", "checkpoint.keep_last=9", "--set", "log.digest_every_steps=1"});
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }
}

TEST_F(CkptTest, CheckpointsOfARunHaveItsDigestsAndItsModel) {
  TrainInParts(Shared("llama.yaml"), Path("run"));
  const std::string metrics = ReadAll(Path("run/metrics.jsonl"));
  for (const std::string step : {"2", "4", "6"}) {
    std::string digest = Ckpt({"digest", Path("run"), "--step", step}).output;
    digest.pop_back();
    const std::string line = metrics.substr(metrics.find("\"step\":" + step + ","));
    EXPECT_THAT(line.substr(0, line.find('\n')), HasSubstr("\"state_digest\":\"" + digest + "\""));
  }
  EXPECT_EQ(Ckpt({"verify", Path("run"), "--all"}).exit_code, 0);
  ASSERT_EQ(Ckpt({"export", Path("run"), Path("out")}).exit_code, 0);
  EXPECT_EQ(ReadAll(Path("out/model.safetensors")), ReadAll(Path("run/model/model.safetensors")));
  const std::string first = Path("run/checkpoints/step-0000000002-g1000001");
  const CommandResult diff = Ckpt({"diff", first, Path("run")});
  EXPECT_EQ(diff.exit_code, 1) << diff.output;
  EXPECT_THAT(diff.output, HasSubstr("blocks.0.mlp.down.weight exp_avg: "));
}

TEST_F(CkptTest, PruneKeepsWhatRetentionKeepsAndTheRunGoesOn) {
  TrainInParts(Shared("llama.yaml"), Path("run"));
  const auto steps = [&] {
    std::string found;
    for (const char* step : {"2", "4", "6"}) {
      if (Ckpt({"digest", Path("run"), "--step", step}).exit_code == 0) found += step;
    }
    return found;
  };
  EXPECT_EQ(Ckpt({"prune", Path("run")}).exit_code, 0);  // by its config: 9
  EXPECT_EQ(steps(), "246");
  const CommandResult pruned = Ckpt({"prune", Path("run"), "--keep-last", "1", "--keep-every", "4"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.output;
  EXPECT_EQ(steps(), "46");
  EXPECT_EQ(Ckpt({"prune", Path("run/checkpoints"), "--keep-last", "1", "--keep-every", "0"}).exit_code, 0);
  EXPECT_EQ(steps(), "6");
  const CommandResult more =
      RunHoldfast({"train", Path("run/config.yaml"), "--run-dir", Path("run"), "--set", "train.steps=7"});
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("step-0000000006"));
}

TEST_F(CkptTest, PruneDeletesNoIntactCheckpointForADamagedOne) {
  TrainInParts(Shared("llama.yaml"), Path("run"));
  const fs::path checkpoints = Path("run/checkpoints");
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  ASSERT_EQ(found.size(), 3u);
  const fs::path shard = found[2] / "shard-0-of-1.h5";
  FlipBit(shard, fs::file_size(shard) / 2);  // its manifest and all sizes are as they were
  for (const char* option : {"--dry-run", "--take-over"}) {
    const CommandResult refused = Ckpt({"prune", Path("run"), "--keep-last", "1", option});
    EXPECT_EQ(refused.exit_code, 1) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(found[2].filename().string() + ", the newest checkpoint, is damaged ("));
    EXPECT_THAT(refused.output, HasSubstr("shard-0-of-1.h5"));
    EXPECT_THAT(refused.output, HasSubstr("--damaged deletes " + found[2].filename().string()));
    for (const fs::path& path : found) EXPECT_TRUE(fs::exists(path / "manifest.json")) << path;
  }
  const CommandResult pruned = Ckpt({"prune", Path("run"), "--keep-last", "1", "--damaged"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.output;
  EXPECT_FALSE(fs::exists(found[0]));
  EXPECT_FALSE(fs::exists(found[2]));
  const CommandResult left = Ckpt({"verify", Path("run"), "--all"});
  EXPECT_EQ(left.exit_code, 0) << left.output;
  EXPECT_THAT(left.output, HasSubstr(found[1].filename().string() + ": valid"));
}

TEST_F(CkptTest, WhatElseIsInTheDirectoryStays) {
  MustImport("llama-1", "ck");
  fs::create_directories(Path("ck/data/inbox"));
  WriteAll(Path("ck/src/.thesis.tmp-0123456789ab"), "draft");
  fs::create_directories(Path("ck") + "/step-0000000003-g9");  // what is left of a checkpoint
  const CommandResult pruned = Ckpt({"prune", Path("ck"), "--take-over"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.output;
  EXPECT_TRUE(fs::exists(Path("ck/data/inbox")));
  EXPECT_TRUE(fs::exists(Path("ck/src/.thesis.tmp-0123456789ab")));
  EXPECT_FALSE(fs::exists(Path("ck/step-0000000003-g9")));
  const CommandResult typo = Ckpt({"prune", Path("ck/data")});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.output, HasSubstr("no checkpoints here"));
  EXPECT_TRUE(fs::is_empty(Path("ck/data/inbox")));
}

TEST_F(CkptTest, PruneRefusesWhileARunIsTraining) {
  Command run({"train", Shared("llama.yaml"), "--run-dir", Path("run"), "--set", "train.steps=1000000"});
  ASSERT_TRUE(run.WaitForOutput("step      20/"));
  const CommandResult pruned = Ckpt({"prune", Path("run")});
  EXPECT_EQ(pruned.exit_code, 75) << "as for whoever trains in the directory of a live run";
  EXPECT_THAT(pruned.output, HasSubstr("which is running: wait for the run, or stop it\n"));
  EXPECT_EQ(Ckpt({"prune", Path("run"), "--dry-run"}).exit_code, 0);
  const CommandResult status = RunHoldfast({"status", Path("run")});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.output, AllOf(HasSubstr("run run: training: in process "), HasSubstr(" of 1000000, loss ")));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait().exit_code, 143);
  EXPECT_EQ(Ckpt({"verify", Path("run")}).exit_code, 0);
  EXPECT_EQ(Ckpt({"prune", Path("run")}).exit_code, 0);
}

TEST_F(CkptTest, TrainingFromAnImportIsTrainingFromTheModel) {
  MustImport("llama-1", "ck");
  const auto train = [&](const std::string& run, const std::string& setting) {
    const CommandResult trained =
        RunHoldfast({"train", Shared("llama.yaml"), "--run-dir", Path(run), "--set", setting});
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
  };
  train("imported", "checkpoint.directory=" + Path("ck"));
  train("initialised", "train.init_from=" + Model("llama-1"));
  const CommandResult compared = RunHoldfast({"compare", Path("imported"), Path("initialised")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  train("neither", "checkpoint.every=never");
  EXPECT_EQ(RunHoldfast({"compare", Path("imported"), Path("neither")}).exit_code, 1);
  EXPECT_THAT(Ckpt({"list", Path("imported")}).output, HasSubstr(Path("ck")));
}

/// A copy of llama-1 with `was` in its config.json changed to `is`.
class ChangedModelTest : public CkptTest {
 protected:
  std::string Changed(const std::string& was, const std::string& is) {
    const std::string to = Path("changed" + std::to_string(++count_));
    fs::copy(Model("llama-1"), to);
    std::string json = ReadAll(to + "/config.json");
    for (size_t at = json.find(was), from = 0; (at = json.find(was, from)) != std::string::npos;
         from = at + is.size()) {
      json.replace(at, was.size(), is);
    }
    EXPECT_NE(json, ReadAll(to + "/config.json")) << was;
    WriteAll(to + "/config.json", json);
    return to;
  }
  /// Every command that reads a model, with the config `config`.
  std::vector<CommandResult> ReadEverywhere(const std::string& model, const std::string& config) {
    const std::string out = Path("out" + std::to_string(count_));
    return {Ckpt({"import", model, out, "--config", config}),
            RunHoldfast({"train", config, "--run-dir", out + "run", "--set", "train.init_from=" + model}),
            RunHoldfast({"eval", model, Shared("train.bin"), "--sequence-length", "16"}),
            RunHoldfast({"sample", model, "--tokens", "3"})};
  }

  int count_ = 0;
};

TEST_F(ChangedModelTest, WhatIsNotSupportedIsNamedByEveryCommand) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\", \"factor\": 8.0"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\""},
      {"\"model_type\": \"llama\",", "\"model_type\": \"llama\", \"sliding_window\": 8,"},
      {"\"model_type\": \"llama\",", "\"model_type\": \"llama\", \"logits_scaling\": 8.0,"},
      {"\"max_position_embeddings\": 16", "\"max_position_embeddings\": 16777216"},
      {"\"vocab_size\": 256", "\"vocab_size\": 16777216"},
      {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 4096"}};
  const std::vector<std::string> named = {"rope_type",           "hidden_act", "sliding_window", "logits_scaling",
                                          "max_sequence_length", "at least",   "at least"};
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::string model = Changed(changes[i].first, changes[i].second);
    for (const CommandResult& result : ReadEverywhere(model, Shared("llama.yaml"))) {
      EXPECT_EQ(result.exit_code, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(model + "/config.json"));
      EXPECT_THAT(result.output, HasSubstr(named[i]));
    }
  }
}

TEST_F(ChangedModelTest, MissingKeysAreTakenFromTheModelAndOthersMustAgree) {
  const std::string model = Changed("\"rope_theta\": 10000.0", "\"rope_theta\": 500000.0");
  WriteAll(Path("short.yaml"), "data: {train: [" + Shared("train.bin") +
                                   "]}\nbatch: {sequence_length: 16, microbatch_size: 2}\n"
                                   "train: {steps: 3}\nlog: {sample_bytes: 0}\n");
  for (const CommandResult& result : ReadEverywhere(model, Path("short.yaml"))) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
  ASSERT_EQ(Ckpt({"export", Path("out1"), Path("exported")}).exit_code, 0);
  EXPECT_EQ(ReadAll(Path("exported/config.json")), ReadAll(model + "/config.json"));
  EXPECT_THAT(ReadAll(Path("out1run/model/config.json")), HasSubstr("\"rope_theta\": 500000.0"));

  const CommandResult import =
      Ckpt({"import", model, Path("no"), "--config", Shared("llama.yaml"), "--set", "model.rope_theta=10000"});
  EXPECT_EQ(import.exit_code, 2);
  EXPECT_THAT(import.output, HasSubstr("model.rope_theta=10000: 10000, but 500000 in " + model + "/config.json"));
  EXPECT_FALSE(fs::exists(Path("no")));
  const CommandResult train = RunHoldfast({"train", Shared("llama.yaml"), "--run-dir", Path("no"), "--set",
                                           "train.init_from=" + model, "--set", "model.norm_eps=1e-3"});
  EXPECT_EQ(train.exit_code, 2);
  EXPECT_THAT(train.output, HasSubstr("model.norm_eps=1e-3: 0.001, but 1e-05 in " + model + "/config.json"));

  // A run that resumes from the import, whose config says nothing of the model's base.
  const CommandResult resumed = RunHoldfast(
      {"train", Shared("llama.yaml"), "--run-dir", Path("run"), "--set", "checkpoint.directory=" + Path("out1")});
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_THAT(resumed.output, HasSubstr("model.rope_theta is 10000 and was 500000"));
}

TEST_F(CkptTest, DiffSaysWhatDiffers) {
  MustImport("llama-1", "a");
  MustImport("llama-1", "same");
  MustImport("llama-2", "b");
  MustImport("gpt2-1", "other");
  const CommandResult equal = Ckpt({"diff", Path("a"), Path("same")});
  EXPECT_EQ(equal.exit_code, 0) << equal.output;
  EXPECT_THAT(equal.output, HasSubstr("equal: "));
  const CommandResult different = Ckpt({"diff", Path("a"), Path("b"), "--step", "0"});
  EXPECT_EQ(different.exit_code, 1) << different.output;
  EXPECT_THAT(different.output, HasSubstr("blocks.0.mlp.down.weight weight: "));
  EXPECT_THAT(different.output, HasSubstr("first at [0, 0]"));
  EXPECT_THAT(different.output, Not(HasSubstr("exp_avg")));  // both zero
  const CommandResult family = Ckpt({"diff", Path("a"), Path("other")});
  EXPECT_EQ(family.exit_code, 1);
  EXPECT_THAT(family.output, HasSubstr("head.weight: only in A"));
  EXPECT_THAT(family.output, HasSubstr("embedding.positions.weight: only in B"));
  const std::string damaged = Path("b/") + kFirst;
  fs::resize_file(damaged + "/shard-0-of-1.h5", 1000);
  const CommandResult unknown = Ckpt({"diff", Path("a"), damaged});
  EXPECT_EQ(unknown.exit_code, 2) << "1 says that they differ: " << unknown.output;
  EXPECT_THAT(unknown.output, HasSubstr("error: "));
  EXPECT_THAT(unknown.output, HasSubstr("shard-0-of-1.h5"));
}

TEST_F(CkptTest, PruneRemovesLeftoversAndKeepsTheRest) {
  MustImport("llama-1", "ck");
  WriteAll(Path("ck/step-0000000005-g1/shard-0-of-1.h5"), "begun");
  const CommandResult dry = Ckpt({"prune", Path("ck"), "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
  EXPECT_THAT(dry.output, HasSubstr("delete  step-0000000005-g1"));
  EXPECT_TRUE(fs::exists(Path("ck/step-0000000005-g1")));
  const CommandResult pruned = Ckpt({"prune", Path("ck")});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.output;
  EXPECT_FALSE(fs::exists(Path("ck/step-0000000005-g1")));
  EXPECT_EQ(Ckpt({"verify", Path("ck")}).exit_code, 0);

  FlipBit(Path("ck/") + kFirst + "/manifest.json", 100);
  const CommandResult damaged = Ckpt({"prune", Path("ck")});
  EXPECT_THAT(damaged.output, HasSubstr("--damaged"));
  EXPECT_TRUE(fs::exists(Path("ck/") + kFirst + "/manifest.json"));
  EXPECT_EQ(Ckpt({"prune", Path("ck"), "--damaged"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(Path("ck/") + kFirst));
}

TEST_F(CkptTest, PruneLeavesTheCheckpointsOfALivingRunAlone) {
  MustImport("llama-1", "ck");
  WriteAll(Path("ck/step-0000000005-g1/shard-0-of-1.h5"), "being written");
  const auto prune = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"prune", Path("ck")});
    return Ckpt(more);
  };
  ProcessId owner = ThisProcess();
  Claim("ck", owner);
  const CommandResult alive = prune();
  EXPECT_EQ(alive.exit_code, 75);
  EXPECT_THAT(alive.output, HasSubstr("/runs/a, which is running"));
  Claim("ck", {.host = "another-host", .boot = "another", .numbers = owner.numbers, .pid = 1});
  const CommandResult elsewhere = prune();
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_THAT(elsewhere.output, HasSubstr("--take-over"));
  EXPECT_TRUE(fs::exists(Path("ck/step-0000000005-g1")));
  EXPECT_EQ(ReadAll(Path("ck/fence-0000000041.json")).find("another-host") != std::string::npos, true);
  EXPECT_EQ(prune({"--take-over"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(Path("ck/step-0000000005-g1")));
  owner.pid = 2147483646;  // beyond any
  Claim("ck", owner);
  EXPECT_EQ(prune().exit_code, 0);
}

TEST_F(CkptTest, ImportRefusesWhatItCannotDo) {
  MustImport("llama-1", "ck");
  const CommandResult again = Import("llama-2", "ck");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("new directory"));
  const CommandResult misfit = Ckpt({"import", Model("gpt2-1"), Path("misfit"), "--config", Shared("llama.yaml")});
  EXPECT_EQ(misfit.exit_code, 2);
  EXPECT_THAT(misfit.output, HasSubstr("model.position: rope, but learned in " + Model("gpt2-1")));
  EXPECT_FALSE(fs::exists(Path("misfit")));
  const CommandResult config =
      Ckpt({"import", Model("llama-1"), Path("c"), "--config", Shared("llama.yaml"), "--set", "checkpoint.keep_lst=3"});
  EXPECT_EQ(config.exit_code, 2);
  EXPECT_THAT(config.output, HasSubstr("keep_last"));
  EXPECT_EQ(Import("llama-1", "../text.txt/x").exit_code, 2);
}

TEST_F(CkptTest, ImportClearsWhatAKilledImportHasLeft) {
  WriteAll(Path("ck/") + kFirst + "/shard-0-of-1.h5", "begun");
  MustImport("llama-1", "ck");
  EXPECT_EQ(Ckpt({"verify", Path("ck")}).exit_code, 0);
}

TEST_F(CkptTest, ErrorsSayWhatIsWrong) {
  MustImport("llama-1", "ck");
  struct Bad {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  WriteAll(Path("empty/file"), "x");
  const std::vector<Bad> all = {
      {{"list", Path("none")}, 2, "no such directory"},
      {{"list", Path("empty/file")}, 2, "not a directory"},
      {{"list", Path("empty")}, 2, "no checkpoints here"},
      {{"show", Path("empty")}, 2, "no valid checkpoint"},
      {{"list", Model("llama-1")}, 2, "no checkpoints here"},
      {{"prune", Path("empty")}, 2, "no checkpoints here"},
      {{"prune", Path("empty"), "--dry-run"}, 2, "no checkpoints here"},
      {{"show", Path("ck"), "--step", "7"}, 2, "no checkpoint of step 7; there is step 0"},
      {{"show", Path("ck/step-0000000007-g1")}, 2, "no checkpoint step-0000000007-g1; there is step 0"},
      {{"show", Path("ck/") + kFirst, "--step", "7"}, 2, "names another step"},
      {{"show", Path("ck"), "--tensor", "head.weigth"}, 2, "did you mean 'head.weight'"},
      {{"show", Path("ck"), "--step", "-1"}, 2, "--step"},
      {{"show", Path("ck"), "--config", "--stats"}, 2, "--stats"},
      {{"verify", Path("ck"), "--step", "3"}, 2, "no checkpoint of step 3"},
      {{"verify", Path("ck"), "--step", "0", "--all"}, 2, "--all"},
      {{"export", Path("ck"), Path("empty/file/out")}, 2, "empty/file"},
      {{"export", Path("ck"), Path("out"), "--dtype", "f64"}, 2, "f64 not in {f32,bf16,f16}"},
      {{"export", Path("ck"), Path("out"), "--base", Model("llama-1")}, 2, "--base: the run trained all"},
      {{"export", Path("ck"), Path("out"), "--tokenizer", Path("none.json")}, 2, "--tokenizer"},
      {{"prune", Path("ck/") + kFirst}, 2, "one checkpoint"},
      {{"prune", Path("ck"), "--keep-last", "0"}, 2, "--keep-last"},
      {{"diff", Path("ck")}, 2, "B is required"},
      {{"list", "s3://"}, 2, "s3://bucket"},
      {{}, 2, "subcommand"},
  };
  for (const Bad& bad : all) {
    const CommandResult result = Ckpt(bad.arguments);
    SCOPED_TRACE(::testing::PrintToString(bad.arguments));
    EXPECT_EQ(result.exit_code, bad.exit_code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(bad.says));
  }
  EXPECT_FALSE(fs::exists(Path("none")));
  const CommandResult help = Ckpt({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"list", "show", "verify", "digest", "prune", "export", "import", "diff"}) {
    EXPECT_THAT(help.output, HasSubstr(name));
  }
}

}  // namespace
}  // namespace holdfast::integration
