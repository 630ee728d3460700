// Proves that fits and predictions are read back as they were written, and that files which were cut, changed or are of
// another kind are refused by what is wrong.
#include "absl/strings/str_replace.h"
#include "framework/scaling/fit_file.h"
#include "framework/scaling/prediction_file.h"
#include "framework/storage/atomic_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/scaling/synthetic_runs.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

Fit SomeFit(LawForm form, const Law& law) {
  std::vector<Observation> runs = RunsOf(law, GridOfSizes(5, form == LawForm::kMoe), 0.003, 1);
  runs[2].learning_rate = 3e-4;
  runs[3].batch_tokens = 1 << 19;
  runs[4].data_tokens = 1e9;
  return *FitLaw(runs, {.form = form, .resamples = 30, .seed = 0x123456789abcdef0, .level = 0.8}, 2);
}

class Files : public ::testing::Test {
 protected:
  template <typename Read>
  std::string ErrorOf(const Read& read, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(path_, text).ok());
    return std::string(read(path_).status().message());
  }
  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "file.json";
};

TEST_F(Files, AFitIsReadBack) {
  for (const auto& [form, law] :
       {std::pair(LawForm::kChinchilla, ReplicatedChinchilla()), std::pair(LawForm::kKaplan, KaplansLaw()),
        std::pair(LawForm::kMoe, SomeMixtureLaw())}) {
    const Fit fit = SomeFit(form, law);
    ASSERT_TRUE(WriteFileAtomically(path_, ToJson(fit)).ok());
    const auto read = ReadFit(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToJson(*read), ToJson(fit));
    EXPECT_EQ(DigestOf(*read), DigestOf(fit));
    const RunSize target{.parameters = 1e11, .active = 5e10, .tokens = 1e12};
    EXPECT_EQ(Predict(*read, target).run.high, Predict(fit, target).run.high);
  }
}

TEST_F(Files, ABadFitIsRefused) {
  const std::string good = ToJson(SomeFit(LawForm::kChinchilla, ReplicatedChinchilla()));
  const auto error = [&](const std::string& from, const std::string& to) {
    const std::string bad = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(bad, good) << from;
    return ErrorOf(ReadFit, bad);
  };
  EXPECT_THAT(ErrorOf(ReadFit, good.substr(0, good.size() / 2)), HasSubstr("file.json: malformed JSON at byte"));
  EXPECT_THAT(ErrorOf(ReadFit, std::string(100, '[')), HasSubstr("file.json: JSON nested deeper than 8"));
  EXPECT_THAT(ErrorOf(ReadFit, "{}"), HasSubstr("file.json: it is no holdfast scaling fit"));
  EXPECT_THAT(error("\"version\":1", "\"version\":2"), HasSubstr("version 1 is expected, not 2"));
  EXPECT_THAT(error("\"chinchilla\"", "\"gopher\""), HasSubstr("there is no form 'gopher'"));
  EXPECT_THAT(error("\"chinchilla\"", "\"moe\""), HasSubstr("'exponents' has to be a list of 3 numbers"));
  EXPECT_THAT(error("\"level\":0.8", "\"level\":8"), HasSubstr("'level' has to be in [0.5, 0.99]"));
  EXPECT_THAT(error("\"log_coefficients\":[", "\"log_coefficients\":[1,"), HasSubstr("a list of 3 numbers"));
  EXPECT_THAT(error("\"log_coefficients\":[", "\"log_coefficients\":[1e999,"), HasSubstr("file.json"));
  EXPECT_THAT(error("\"exponents\":[0.", "\"exponents\":[10."), HasSubstr("an exponent is 10."));
  EXPECT_THAT(error("\"learning_rate\":0.0003", "\"learning_rate\":0.0004"), HasSubstr("it has been changed"));
  EXPECT_THAT(error("\"learning_rate\":0.0003", "\"learning_rate\":-1"), HasSubstr("run 3 of 'runs': learning_rate"));
  EXPECT_THAT(error("\"runs\":[", "\"runs\":[7,"), HasSubstr("run 1 of 'runs': 'name' has to be text"));
  EXPECT_THAT(error("\"runs\":", "\"walks\":"), HasSubstr("'runs' has to be a list of more than 5 runs"));
  EXPECT_THAT(error("\"resampled\":[", "\"resampled\":[[1,2],"), HasSubstr("a list of 5 numbers"));
  EXPECT_THAT(error("\"resampled\":[", "\"resampled\":[],\"was\":["), HasSubstr("'resampled'"));
}

SavedPrediction SomePrediction() {
  return {.run_name = "large",
          .config_digest = 0xfedcba9876543210,
          .fit_digest = 7,
          .size = {.parameters = 7e10, .active = 6e10, .tokens = 1.4e12},
          .level = 0.9,
          .prediction = {.loss = 1.9, .law = {1.88, 1.92}, .run = {1.87, 1.93}},
          .when = absl::FromUnixSeconds(1'700'000'000)};
}

TEST_F(Files, APredictionIsReadBack) {
  const SavedPrediction saved = SomePrediction();
  ASSERT_TRUE(WriteFileAtomically(path_, ToJson(saved)).ok());
  const auto read = ReadPrediction(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(saved));
  EXPECT_EQ(read->when, saved.when);
  EXPECT_EQ(read->config_digest, saved.config_digest);
}

TEST_F(Files, ABadPredictionIsRefused) {
  const std::string good = ToJson(SomePrediction());
  const auto error = [&](const std::string& from, const std::string& to) {
    return ErrorOf(ReadPrediction, absl::StrReplaceAll(good, {{from, to}}));
  };
  EXPECT_THAT(error("\"version\": 1", "\"version\": \"1\""), HasSubstr("version 1 is expected"));
  EXPECT_THAT(error("fedcba9876543210", "xyz"), HasSubstr("'config_digest' has to be 16 hexadecimal digits"));
  EXPECT_THAT(error("\"loss\": 1.9", "\"loss\": -1"), HasSubstr("loss has to be a positive number"));
  EXPECT_THAT(error("1.87", "2.87"), HasSubstr("'run_interval' has to be positive and ascending"));
  EXPECT_THAT(error("2023-", "Tuesday"), HasSubstr("'predicted_at'"));
  EXPECT_THAT(ErrorOf(ReadPrediction, ToJson(SomeFit(LawForm::kChinchilla, ReplicatedChinchilla()))),
              HasSubstr("it is no holdfast scaling prediction"));
}

TEST_F(Files, TheOutcomeSaysHowFarOff) {
  Observation run{.name = "large",
                  .size = SomePrediction().size,
                  .flops = 1,
                  .loss = 1.95,
                  .learning_rate = {},
                  .batch_tokens = {}};
  EXPECT_EQ(DescribeOutcome(SomePrediction(), run),
            "predicted  1.9000 nats per token, a run 1.8700 to 1.9300 (90 %), on 2023-11-14T22:13:20Z\n"
            "actual     1.9500\n"
            "off by     +0.0500 (+2.63 %), outside the interval\n");
  run.loss = 1.89;
  EXPECT_THAT(DescribeOutcome(SomePrediction(), run), HasSubstr("-0.0100 (-0.53 %), within the interval"));
}

}  // namespace
}  // namespace holdfast
