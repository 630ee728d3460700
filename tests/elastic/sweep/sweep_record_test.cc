// Proves that what a sweep has found is read back to the last bit, and that a record of something else is refused.

#include "elastic/sweep/sweep_record.h"

#include <cmath>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

PlannedTrial Planned() {
  PlannedTrial trial;
  trial.number = 3;
  trial.suggestion.point = {{"optimizer.lr", 0.1 + 0.2}};
  trial.setup = TrialSetup();
  trial.setup->digest = 0xfeedfacecafebeefU;
  trial.setup->config.train.steps = 12;
  return trial;
}

class SweepRecord : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    std::ofstream(path_) << text;
    return path_;
  }
  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "record.jsonl";
};

TEST_F(SweepRecord, IsReadBackToTheLastBit) {
  const TrialResult result{
      .measured = true, .value = std::nextafter(1.0, 2.0), .steps = 12, .seconds = 0.1, .reason = ""};
  const TrialResult failed{.measured = false, .value = NAN, .steps = 5, .seconds = 2, .reason = "\"a\"\n\xff"};
  PlannedTrial other = Planned();
  other.number = 4;
  const auto read = ReadRecord(Write(RecordLine(RecordOf(Planned(), result, true)) + "\n" +
                                     RecordLine(RecordOf(other, failed, false)) + "\n{\"trial\":5,\"torn"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ(read->at(3).result.value, result.value);
  EXPECT_EQ(read->at(3).result.seconds, result.seconds);
  EXPECT_TRUE(read->at(3).reused);
  EXPECT_TRUE(CheckRecorded(read->at(3), Planned()).ok());
  EXPECT_FALSE(read->at(4).result.measured);
  EXPECT_EQ(read->at(4).result.steps, 5);
  EXPECT_THAT(read->at(4).result.reason, HasSubstr("\"a\"\n"));
}

TEST_F(SweepRecord, OfAnotherRunIsRefused) {
  const RecordedTrial recorded = RecordOf(Planned(), {.measured = true, .value = 1, .steps = 12}, false);
  PlannedTrial now = Planned();
  now.setup->digest = 1;
  EXPECT_THAT(std::string(CheckRecorded(recorded, now).message()), HasSubstr("has changed since"));
  now = Planned();
  now.suggestion.point = {{"optimizer.lr", 0.3}};
  EXPECT_FALSE(CheckRecorded(recorded, now).ok()) << "0.1 + 0.2 is not 0.3";
}

TEST_F(SweepRecord, ThatIsDamagedIsRefusedByLine) {
  const std::string good = RecordLine(RecordOf(Planned(), {.measured = true, .value = 1, .steps = 12}, false));
  for (const std::string& bad : {std::string("{}"), std::string("rubbish"), good.substr(1)}) {
    EXPECT_THAT(std::string(ReadRecord(Write(good + "\n" + bad + "\n")).status().message()), HasSubstr(":2"));
  }
  EXPECT_TRUE(ReadRecord(path_ + ".none")->empty());
}

}  // namespace
}  // namespace holdfast
