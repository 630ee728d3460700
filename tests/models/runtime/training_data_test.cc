// Proves that a config whose tokenizer cannot be the one that its data was packed with is warned of, and only such a
// one: by the largest token that the index of the first file names.

#include "models/runtime/training_data.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainingDataTest : public TinyRun {
 protected:
  std::string LogOfCheck(const Config& config) {
    testing::internal::CaptureStderr();
    const absl::Status checked = CheckTrainingData(config);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(checked.ok()) << checked;
    return said;
  }
};

TEST_F(TrainingDataTest, ATokenThatTheTokenizerHasNotIsWarnedOf) {
  const Config config = ConfigOf({"model.vocab_size=400"});
  EXPECT_THAT(LogOfCheck(config), Not(HasSubstr("data.tokenizer"))) << "bytes, and tokens up to 97";
  WriteTokens("train.bin", 255);
  EXPECT_THAT(LogOfCheck(config), Not(HasSubstr("data.tokenizer")));
  WriteTokens("train.bin", 256);
  EXPECT_THAT(LogOfCheck(config), HasSubstr("data.tokenizer: bytes has 256 tokens, but " + (root_ / "train.bin") +
                                            " holds token 256, so it was packed with another tokenizer"));
}

}  // namespace
}  // namespace holdfast
