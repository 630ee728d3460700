// Proves that a config file gives the values written in it, in the stated precedence, and that every error is reported
// at once with its place, by comparing whole messages.

#include "framework/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "models/families/families.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

constexpr char kMinimal[] = "model: {vocab_size: 256}\ndata: {train: [a.bin]}\ntrain: {steps: 100}\n";

Config Good(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<Config> config = ParseConfig(text, "c.yaml", overrides, {.families = FamilyPresets()});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.value_or(Config{});
}

std::string Errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<Config> config = ParseConfig(text, "c.yaml", overrides, {.families = FamilyPresets()});
  EXPECT_FALSE(config.ok());
  if (config.ok()) return "";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

/// The error of one override on a good file, without its "--set ...: ".
std::string SetError(const std::string& override_text) {
  const std::string errors = Errors(kMinimal, {override_text});
  const std::string prefix = "--set " + override_text + ": ";
  EXPECT_EQ(errors.substr(0, prefix.size()), prefix);
  return errors.size() < prefix.size() ? errors : errors.substr(prefix.size());
}

TEST(LoadTest, DefaultsAndDerivedValues) {
  const Config config = Good(kMinimal);
  EXPECT_EQ(config.model.vocab_size, 256);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"a.bin"});
  EXPECT_EQ(config.train.steps, 100);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.model.num_kv_heads, 12);
  EXPECT_EQ(config.model.intermediate_size, 3072);
  EXPECT_EQ(config.train.threads, 0);
  EXPECT_EQ(config.schedule.decay_steps, 0);
}

TEST(LoadTest, FamilyPresetComesBeforeOtherKeysInAnyOrder) {
  const std::string head = "data: {train: a.bin}\ntrain: {steps: 1}\nmodel:\n  vocab_size: 256\n";
  for (const std::string keys : {"  tie_embeddings: true\n  norm: layernorm\n  family: llama\n",
                                 "  family: llama\n  norm: layernorm\n  tie_embeddings: true\n"}) {
    const ModelConfig model = Good(head + keys).model;
    EXPECT_EQ(model.family, "llama");
    EXPECT_EQ(model.position, PositionKind::kRope);
    EXPECT_EQ(model.activation, ActivationKind::kSwiglu);
    EXPECT_EQ(model.norm, NormType::kLayerNorm);
    EXPECT_FALSE(model.bias);
    EXPECT_TRUE(model.tie_embeddings);
  }
}

TEST(LoadTest, FamilyFromAnOverrideIsAPresetToo) {
  const std::string file =
      "data: {train: a.bin}\ntrain: {steps: 1}\nmodel: {vocab_size: 9, family: gpt2, bias: true}\n";
  const ModelConfig model = Good(file, {"model.norm=layernorm", "model.family=llama"}).model;
  EXPECT_EQ(model.position, PositionKind::kRope);
  EXPECT_EQ(model.norm, NormType::kLayerNorm);
  EXPECT_TRUE(model.bias);
  EXPECT_FALSE(model.tie_embeddings);
}

TEST(LoadTest, OverridesWinAndTheLastOneMost) {
  const Config config =
      Good(kMinimal, {"optimizer.lr=1e-2", "optimizer.lr=5e-1", "data.train=[x.bin, 'y z.bin']",
                      "data.validation=v.bin", "train.init_from=", "run.seed=18446744073709551615", "train.steps=7"});
  EXPECT_EQ(config.optimizer.lr, 0.5);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"x.bin", "y z.bin"}));
  EXPECT_EQ(config.data.validation, std::vector<std::string>{"v.bin"});
  EXPECT_EQ(config.train.init_from, "");
  EXPECT_EQ(config.run.seed, 18446744073709551615u);
  EXPECT_EQ(config.train.steps, 7);
}

TEST(LoadTest, OverrideSuppliesARequiredKey) {
  EXPECT_EQ(Good("", {"model.vocab_size=8", "data.train=a", "train.steps=1"}).model.vocab_size, 8);
  EXPECT_EQ(Good("", {"model.vocab_size=8", "data.train=a", "train.epochs=0.5"}).train.epochs, 0.5);
}

/// A Llama with tied embeddings, grouped heads and a base of its own.
absl::StatusOr<std::optional<InitialModel>> ALlama(const std::string& init_from) {
  if (init_from.empty()) return std::nullopt;
  ModelConfig model = Good(
                          "model: {family: llama, vocab_size: 300, hidden_size: 128, num_layers: 3, num_heads: 8, "
                          "num_kv_heads: 2, tie_embeddings: true, rope_theta: 500000, norm_eps: 1e-6}\n"
                          "data: {train: a.bin}\ntrain: {steps: 1}\n")
                          .model;
  return InitialModel{.model = model, .file = init_from + "/config.json", .tokenizer = init_from + "/tokenizer.json"};
}

std::string From(const std::string& model) {
  return "model: {" + model +
         "}\ndata: {train: a.bin}\ntrain: {steps: 1, init_from: dir}\nbatch: {sequence_length: 8}\n";
}

TEST(InitialModelTest, MissingKeysAreTakenFromIt) {
  const ModelConfig theirs = (*ALlama("dir"))->model;
  for (const std::string keys : {"", "family: llama", "num_kv_heads: 2, norm_eps: 0.000001", "position: rope"}) {
    const auto config = ParseConfig(From(keys), "c.yaml", {}, {.families = FamilyPresets(), .initial_model = ALlama});
    ASSERT_TRUE(config.ok()) << keys << ": " << config.status();
    EXPECT_EQ(config->model, theirs) << keys;
  }
  const auto own = ParseConfig(From("dropout: 0.1, init_std: 0.5, max_sequence_length: 4096"), "c.yaml", {},
                               {.families = FamilyPresets(), .initial_model = ALlama});
  ASSERT_TRUE(own.ok()) << own.status();  // what changes no number of a forward pass
  EXPECT_EQ(own->model.dropout, 0.1);
  EXPECT_EQ(own->model.max_sequence_length, 4096);
  const auto resolved =
      ParseConfig(PrintConfig(*own), "c.yaml", {}, {.families = FamilyPresets(), .initial_model = ALlama});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved, *own);
}

TEST(InitialModelTest, ItsTokenizerIsTheDefault) {
  const auto tokenizer = [](const std::vector<std::string>& overrides) {
    const auto config =
        ParseConfig(From(""), "c.yaml", overrides, {.families = FamilyPresets(), .initial_model = ALlama});
    EXPECT_TRUE(config.ok()) << config.status();
    return config->data.tokenizer;
  };
  EXPECT_EQ(tokenizer({}), "dir/tokenizer.json");
  EXPECT_EQ(tokenizer({"data.tokenizer=bytes"}), "bytes");
}

TEST(InitialModelTest, DifferencesAreNamedWithTheirPlace) {
  const auto error = [](const std::string& model, const std::vector<std::string>& overrides = {}) {
    const auto config =
        ParseConfig(From(model), "c.yaml", overrides, {.families = FamilyPresets(), .initial_model = ALlama});
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(config.status().message());
  };
  const std::string from = " in dir/config.json, whose weights the run starts from; leave ";
  const std::string tail = from + "the key out to take that value";
  const std::string family = from + "model.family out to take that value";  // the preset's, which no line says
  EXPECT_EQ(error("rope_theta: 10000"), "c.yaml:1: model.rope_theta: 10000, but 500000" + tail);
  EXPECT_EQ(error("", {"model.norm_eps=1e-5"}), "--set model.norm_eps=1e-5: 1e-05, but 1e-06" + tail);
  EXPECT_EQ(error("num_heads: 4"), "c.yaml:1: model.num_heads: 4, but 8" + tail);  // the same matrices
  EXPECT_EQ(error("num_kv_heads: 0"), "c.yaml:1: model.num_kv_heads: 8, but 2" + tail);
  EXPECT_EQ(error("tie_embeddings: false"), "c.yaml:1: model.tie_embeddings: false, but true" + tail);
  EXPECT_NE(error("family: gpt2").find("c.yaml:1: model.position: learned, but rope" + family), std::string::npos);
  EXPECT_NE(
      error("", {"model.family=gpt2"}).find("--set model.family=gpt2: model.position: learned, but rope" + family),
      std::string::npos);
  EXPECT_NE(error("vocab_size: 5, hidden_sise: 3").find("hidden_sise"), std::string::npos);
  EXPECT_NE(error("vocab_size: 5, hidden_sise: 3").find("model.vocab_size: 5, but 300"), std::string::npos);
}

TEST(InitialModelTest, OneThatCannotBeReadIsItsOwnError) {
  const absl::Status broken = absl::UnimplementedError("dir/config.json: hidden_act");
  const auto read = [&](const std::string&) -> absl::StatusOr<std::optional<InitialModel>> { return broken; };
  EXPECT_EQ(ParseConfig(From(""), "c.yaml", {}, {.families = FamilyPresets(), .initial_model = read}).status(), broken);
  EXPECT_EQ(ParseConfig(From("hidden_sise: 3"), "c.yaml", {}, {.families = FamilyPresets(), .initial_model = read})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      ParseConfig(kMinimal, "c.yaml", {}, {.families = FamilyPresets(), .initial_model = ALlama})->model.vocab_size,
      256);  // train.init_from is not set
}

TEST(LoadTest, EveryErrorOfAFileAtOnceInItsOrder) {
  const std::string text =
      "modle:\n"                  // 1
      "  vocab_size: 256\n"       // 2
      "model:\n"                  // 3
      "  hiden_size: 64\n"        // 4
      "  num_layers: abc\n"       // 5
      "  num_heads: 0\n"          // 6
      "  dropout: .nan\n"         // 7
      "  bias: yes\n"             // 8
      "  norm: rmsnrm\n"          // 9
      "  num_layers: 3\n"         // 10
      "optimizer: 5\n"            // 11
      "train:\n"                  // 12
      "  lr: 3\n"                 // 13
      "  validate_every: 3\n"     // 14
      "  steps: 10k\n"            // 15
      "  frobnicate: 1\n"         // 16
      "log:\n"                    // 17
      "data:\n"                   // 18
      "  tokenizer: [a]\n"        // 19
      "  validation: [[a]]\n"     // 20
      "  loader_threads: '2'\n";  // 21
  EXPECT_EQ(Errors(text, {"optimizer.lrr=1", "lr=2", "schedule.name=cosin"}),
            "c.yaml:1: modle: unknown section (did you mean 'model'?)\n"
            "c.yaml:3: model.vocab_size: required key is missing\n"
            "c.yaml:4: model.hiden_size: unknown key (did you mean 'hidden_size'?)\n"
            "c.yaml:5: model.num_layers: expected an integer, got 'abc'\n"
            "c.yaml:6: model.num_heads: must be between 1 and 1024, got '0'\n"
            "c.yaml:7: model.dropout: expected a number, got '.nan'\n"
            "c.yaml:8: model.bias: expected true or false, got 'yes'\n"
            "c.yaml:9: model.norm: expected one of layernorm, rmsnorm, got 'rmsnrm' (did you mean 'rmsnorm'?)\n"
            "c.yaml:10: model.num_layers: key given twice, first on line 5\n"
            "c.yaml:11: optimizer: expected a map of keys below the section\n"
            "c.yaml:13: train.lr: unknown key (did you mean 'optimizer.lr'?)\n"
            "c.yaml:14: train.validate_every: unknown key (did you mean 'validate_every_steps'?)\n"
            "c.yaml:15: train.steps: expected an integer, got '10k' (write the plain number; a unit is part of the "
            "key's name)\n"
            "c.yaml:16: train.frobnicate: unknown key\n"
            "c.yaml:18: data.train: required key is missing\n"
            "c.yaml:19: data.tokenizer: expected a string, got a list\n"
            "c.yaml:20: data.validation: expected a path or a list of paths, got a list in the list\n"
            "c.yaml:21: data.loader_threads: expected an integer, got the string \"2\"\n"
            "--set optimizer.lrr=1: unknown key (did you mean 'lr'?)\n"
            "--set lr=2: expected section.key=value (did you mean 'optimizer.lr'?)\n"
            "--set schedule.name=cosin: expected one of constant, cosine, linear, wsd, got 'cosin' (did you mean "
            "'cosine'?)");
}

TEST(LoadTest, Numbers) {
  EXPECT_EQ(SetError("model.num_layers=9223372036854775808"), "must be between 1 and 4096, got '9223372036854775808'");
  EXPECT_EQ(SetError("model.num_layers=1e3"), "expected an integer, got '1e3'");
  EXPECT_EQ(SetError("model.num_layers=1.0"), "expected an integer, got '1.0'");
  EXPECT_EQ(SetError("model.num_layers=010"), "expected an integer, got '010'");
  EXPECT_EQ(SetError("model.num_layers="), "expected an integer, got the string \"\"");
  EXPECT_EQ(SetError("run.seed=-1"), "must be between 0 and 18446744073709551615, got '-1'");
  EXPECT_EQ(SetError("optimizer.lr=inf"), "expected a finite number, got 'inf'");
  EXPECT_EQ(SetError("optimizer.lr=nan"), "expected a finite number, got 'nan'");
  EXPECT_EQ(SetError("optimizer.lr=1e999"), "expected a finite number, got '1e999'");
  EXPECT_EQ(SetError("optimizer.lr=0x1"), "expected a number, got '0x1'");
  EXPECT_EQ(SetError("optimizer.lr=3ms"),
            "expected a number, got '3ms' (write the plain number; a unit is part of the key's name)");
  EXPECT_EQ(SetError("optimizer.beta1=1"), "must be between 0 and 0.999999, got '1'");
  EXPECT_EQ(SetError("optimizer.eps=0"), "must be between 1e-30 and 1, got '0'");
  EXPECT_EQ(SetError("model.dropout=1"), "must be between 0 and 0.99, got '1'");
  EXPECT_EQ(SetError("lora.alpha=0"), "must be between 1e-06 and 1e+06, got '0'");  // trains nothing
  EXPECT_EQ(SetError("schedule.min_lr_ratio=1.5"), "must be between 0 and 1, got '1.5'");
  EXPECT_EQ(SetError("batch.microbatches=0"), "must be between 1 and 65536, got '0'");
  EXPECT_EQ(SetError("model.rope_long_factors=2"), "expected a list of numbers, got '2'");
  EXPECT_EQ(SetError("model.rope_long_factors=[1, x]"), "expected a number, got 'x' in the list");
  EXPECT_EQ(SetError("model.rope_long_factors=[1, [2]]"), "expected a number, got a list in the list");
  EXPECT_EQ(SetError("model.rope_long_factors=[inf]"), "expected a finite number, got 'inf' in the list");
  EXPECT_EQ(SetError("model.rope_long_factors=[1, 0]"), "must be between 1e-06 and 1e+06, got '0' in the list");
}

TEST(LoadTest, APipeOfTheShellIsReadAndOneWithANameIsRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], kMinimal, sizeof(kMinimal) - 1), static_cast<ssize_t>(sizeof(kMinimal) - 1));
  close(ends[1]);
  const auto config = LoadConfig("/dev/fd/" + std::to_string(ends[0]), {}, {.families = FamilyPresets()});
  close(ends[0]);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train.steps, 100);

  const TestDirectory directory;
  const std::string named = directory / "pipe";
  ASSERT_EQ(mkfifo(named.c_str(), 0600), 0);
  const absl::Status refused = LoadConfig(named, {}, {.families = FamilyPresets()}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(named + ": a pipe"));
}

TEST(LoadTest, StringsAndPaths) {
  EXPECT_EQ(SetError("data.train=[]"), "must name at least one file");
  EXPECT_EQ(SetError("data.train=[a, '']"), "a path must not be empty");
  EXPECT_EQ(SetError("data.tokenizer="), "must not be empty");
  EXPECT_EQ(SetError("optimizer.name=sgd"), "expected one of adamw, lion, muon, got 'sgd'");
  EXPECT_EQ(SetError("train.device=gpu"), "expected one of cpu, cuda, got 'gpu' (did you mean 'cuda'?)");
  EXPECT_EQ(SetError("run.name=../up").substr(0, 20), "expected 1 to 128 le");
  EXPECT_EQ(SetError("train.init_from=\"a\\nb\""),
            "expected a string without control characters, got the string \"a\\x0ab\"");
}

TEST(LoadTest, OverrideShape) {
  EXPECT_EQ(SetError("model.num_layers"), "expected section.key=value");
  EXPECT_EQ(SetError("=3"), "expected section.key=value");
  EXPECT_EQ(SetError("modell.num_layers=3"), "unknown section (did you mean 'model'?)");
  EXPECT_EQ(SetError("model.num_layers={a: 3}"), "expected an integer, got a map");
  EXPECT_EQ(SetError("data.train=[a").substr(0, 12), "YAML syntax:");
  EXPECT_EQ(SetError("train.freeze=*bias"),
            "aliases (*name) are not supported; write the value again, or in quotes if it begins with a *");
  for (const char* cut : {"data.tokenizer=a #1", "data.tokenizer=#a"}) {
    EXPECT_EQ(SetError(cut), "YAML takes # and what follows for a comment; write the value in quotes") << cut;
  }
  for (const char* whole : {"data.tokenizer='a #1'", "data.tokenizer=a#1"}) {
    EXPECT_TRUE(ParseConfig(kMinimal, "c.yaml", {whole}, {.families = FamilyPresets()}).ok()) << whole;
  }
}

TEST(LoadTest, SyntaxErrorHasItsLineAndKeepsTheErrorsBeforeIt) {
  const std::string errors = Errors("model:\n  hiden_size: 3\n  bias: [true\ntrain:\n  steps: 3\n");
  EXPECT_EQ(errors.substr(0, errors.find('\n')),
            "c.yaml:2: model.hiden_size: unknown key (did you mean 'hidden_size'?)");
  EXPECT_NE(errors.find("YAML syntax:"), std::string::npos);
  EXPECT_EQ(errors.find("required"), std::string::npos) << errors;
  EXPECT_EQ(Errors("model:\n\tbias: true\n"), "c.yaml:2: YAML syntax: a tab in the indentation; use spaces");
}

TEST(LoadTest, NotSections) {
  EXPECT_EQ(Errors("- a\n- b\n").substr(0, 27), "c.yaml:1: expected sections");
  EXPECT_EQ(Errors("hello").substr(0, 27), "c.yaml:1: expected sections");
  EXPECT_EQ(Errors(""),
            "c.yaml: model.vocab_size: required key is missing\n"
            "c.yaml: data.train: required key is missing\n"
            "c.yaml: train.steps: required key is missing");
  EXPECT_EQ(Errors(std::string(kMinimal) + "? [a, b]\n: 3\n"), "c.yaml:4: expected the name of a section");
  EXPECT_EQ(Errors(std::string(kMinimal) + "train: {threads: 2}\n"),
            "c.yaml:4: train: section given twice, first on line 3");
  EXPECT_EQ(Errors(std::string(kMinimal) + "---\nrun: {}\n"),
            "c.yaml:5: a second YAML document (---); a config is one document");
}

TEST(LoadTest, FilesThatCannotBeRead) {
  const absl::Status missing = LoadConfig("/no/such/config.yaml", {}, {.families = FamilyPresets()}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/config.yaml"), absl::string_view::npos);
  EXPECT_EQ(LoadConfig("/", {}, {.families = FamilyPresets()}).status().code(), absl::StatusCode::kInvalidArgument);
  // What is there and cannot be read now is no mistake in its name. (Root may read what others may not.)
  const absl::Status unread = LoadConfig("/proc/self/mem", {}, {.families = FamilyPresets()}).status();
  EXPECT_EQ(unread.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(unread.message(), "cannot read config /proc/self/mem: Input/output error");
  EXPECT_EQ(LoadConfig("/dev/zero", {}, {.families = FamilyPresets()}).status().message(),
            "/dev/zero: larger than 1048576 bytes; this is not a config file");
}

}  // namespace
}  // namespace holdfast
