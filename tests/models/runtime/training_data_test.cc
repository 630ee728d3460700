// Proves that a config whose tokenizer cannot be the one that its data was packed with is warned of, and only such a
// one: by the largest token that an index of its files names. Of a vocabulary far beyond the tokenizer's, and of files
// that no validation comes to. That a token which was added to the tokenizer, and for which the model has no embedding,
// is named with its file before a run begins. And that data.document_mask takes documents apart by the end of text that
// lies beside the tokenizer, or says what is missing.

#include "models/runtime/training_data.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_replace.h"
#include "framework/base/files.h"
#include "tests/models/runtime/tiny_run.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using testing::AllOf;
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

// Damage is a failure, whatever else there is to change.
TEST_F(TrainingDataTest, AFileThatIsDamagedIsToldFromOneThatIsMissing) {
  const Config config = ConfigOf({"data.validation=[none.bin]"});
  EXPECT_TRUE(absl::IsInvalidArgument(CheckTrainingData(config))) << CheckTrainingData(config);
  std::filesystem::resize_file(root_ / "train.bin", 2000);
  const absl::Status both = CheckTrainingData(config);
  EXPECT_TRUE(absl::IsDataLoss(both)) << both;
  EXPECT_THAT(std::string(both.message()),
              AllOf(HasSubstr("truncated"), HasSubstr("; data.validation: cannot open token file: none.bin")));
}

TEST_F(TrainingDataTest, ATokenThatTheTokenizerHasNotIsWarnedOf) {
  const Config config = ConfigOf({"model.vocab_size=400"});
  EXPECT_THAT(LogOfCheck(config), Not(HasSubstr("data.tokenizer"))) << "bytes, and tokens up to 97";
  WriteTokens("train.bin", 255);
  EXPECT_THAT(LogOfCheck(config), Not(HasSubstr("data.tokenizer")));
  WriteTokens("train.bin", 256);
  EXPECT_THAT(LogOfCheck(config), HasSubstr("data.tokenizer: bytes has 256 tokens, but " + (root_ / "train.bin") +
                                            " holds token 256, so it was packed with another tokenizer"));

  WriteTokens("more.bin", 300);
  WriteTokens("train.bin", 255);
  const std::string of_more = "data.tokenizer: bytes has 256 tokens, but " + (root_ / "more.bin") + " holds token 300";
  EXPECT_THAT(LogOfCheck(ConfigOf({"model.vocab_size=400",
                                   absl::StrCat("data.train=[", root_ / "train.bin", ", ", root_ / "more.bin", "]")})),
              HasSubstr(of_more));
  EXPECT_THAT(
      LogOfCheck(ConfigOf({"model.vocab_size=400", absl::StrCat("data.validation=[", root_ / "more.bin", "]")})),
      HasSubstr(of_more));
}

TEST_F(TrainingDataTest, AnAddedTokenThatHasNoEmbeddingIsRefusedByName) {
  const std::string more = root_ / "more.bin",
                    gpt2 = SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json";
  const auto config = [&](const char* key, int vocabulary) {
    return ConfigOf({absl::StrCat("model.vocab_size=", vocabulary), "data.tokenizer=" + gpt2,
                     absl::StrCat(key, "=[", root_ / "train.bin", ", ", more, "]")});
  };
  for (const char* key : {"data.train", "data.validation"}) {
    WriteTokens("more.bin", 1003);
    const std::string named =
        absl::StrCat(key, ": ", more, ": the text has token 1003, \"added\", for which the model ");
    const absl::Status looked_at = CheckTrainingData(config(key, 1003));
    EXPECT_TRUE(absl::IsInvalidArgument(looked_at)) << looked_at;
    for (const absl::Status& refused :
         {looked_at, MeasureTrainingData(config(key, 1003)).status(), OpenTrainingData(config(key, 1003)).status()}) {
      EXPECT_THAT(std::string(refused.message()), HasSubstr(named));
    }
    EXPECT_TRUE(OpenTrainingData(config(key, 1004)).ok());
    WriteTokens("more.bin", 1005);  // which the tokenizer has not either
    EXPECT_THAT(LogOfCheck(config(key, 1003)), HasSubstr("so it was packed with another tokenizer"));
    EXPECT_THAT(std::string(OpenTrainingData(config(key, 1003)).status().message()),
                HasSubstr("is beyond the vocabulary of 1003"));
  }
}

// One that is rounded up, as is usual, is not.
TEST_F(TrainingDataTest, AVocabularyFarBeyondTheTokenizersIsWarnedOf) {
  const std::string gpt2 = SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json";  // 1005 tokens
  const auto log = [&](int vocabulary, const std::string& tokenizer) {
    return LogOfCheck(ConfigOf({absl::StrCat("model.vocab_size=", vocabulary), "data.tokenizer=" + tokenizer}));
  };
  for (const int usual : {256, 281}) EXPECT_THAT(log(usual, "bytes"), Not(HasSubstr("model.vocab_size"))) << usual;
  for (const int usual : {1005, 1024, 1126}) EXPECT_THAT(log(usual, gpt2), Not(HasSubstr("model.vocab_size"))) << usual;
  EXPECT_THAT(log(282, "bytes"), HasSubstr("model.vocab_size: 282, but the tokenizer bytes has 256 tokens: 26 rows of "
                                           "the embeddings are those of no token; 256 would do"));
  EXPECT_THAT(log(32000, gpt2), HasSubstr("has 1005 tokens: 30995 rows of the embeddings are those of no token; 1024 "
                                          "would do"));
  WriteTokens("train.bin", 300);
  EXPECT_THAT(log(32000, "bytes"), AllOf(HasSubstr("packed with another tokenizer"), Not(HasSubstr("would do"))));
}

// The loss was that of the first file alone, without a word. Its 4,000 tokens are 249 sequences of 16.
TEST_F(TrainingDataTest, AFileThatNoValidationComesToIsWarnedOf) {
  WriteTokens("other.bin", 97);
  const auto log = [&](const std::string& files, int microbatches) {
    return LogOfCheck(ConfigOf({"data.validation=[" + files + "]",
                                absl::StrCat("train.validation_microbatches=", microbatches)}));  // of 2 sequences
  };
  const std::string one = root_ / "train.bin", two = one + ", " + (root_ / "other.bin");
  EXPECT_THAT(log(two, 8), HasSubstr("train.validation_microbatches: 8 microbatches are the first 16 sequences of "
                                     "data.validation, which end before " +
                                     (root_ / "other.bin")));
  EXPECT_THAT(log(two, 1), HasSubstr(": 1 microbatch is the first 2 sequences of data.validation, which end before"));
  EXPECT_THAT(log(two, 124), HasSubstr("which end before"));
  for (const int enough : {125, 1000, 0}) EXPECT_THAT(log(two, enough), Not(HasSubstr("which end before"))) << enough;
  EXPECT_THAT(log(one, 8), Not(HasSubstr("which end before")));
}

TEST_F(TrainingDataTest, DocumentsEndWithWhatTheFilesBesideTheTokenizerName) {
  const std::string golden = SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json";
  const std::string tokenizer = root_ / "tokenizer.json";
  std::ofstream(tokenizer) << absl::StrReplaceAll(ReadFile(golden, size_t{1} << 24).value(),
                                                  {{"<|endoftext|>", "<|stop|>"}});
  const Config config = ConfigOf({"model.vocab_size=1100", "data.document_mask=true", "data.tokenizer=" + tokenizer});
  EXPECT_THAT(std::string(CheckTrainingData(config).message()),
              AllOf(HasSubstr("data.document_mask: the tokenizer " + tokenizer + " has no end of text (no token of"),
                    HasSubstr("--documents")));
  std::ofstream(root_ / "tokenizer_config.json") << R"({"eos_token": "<|stop|>"})";
  WriteTokens("train.bin", 1000);  // <|stop|>, which is where the second document would begin
  const absl::StatusOr<TrainingData> data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->training.has_documents());

  // The same tokens, taken apart by another one.
  std::ofstream(root_ / "tokenizer_config.json") << R"({"eos_token": "<|pad|>"})";
  const absl::StatusOr<TrainingData> other = OpenTrainingData(config);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->digest(), data->digest());
  EXPECT_EQ(other->token_digest(), data->token_digest());
  const Config whole = ConfigOf({"model.vocab_size=1100", "data.tokenizer=" + tokenizer});
  EXPECT_EQ(OpenTrainingData(whole)->digest(), data->token_digest()) << "as it was in older builds";
}

// No file could have it, and all documents would be one.
TEST_F(TrainingDataTest, AnEndOfTextThatTheModelLacksTakesNoDocumentsApart) {
  const std::string gpt2 = SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json";
  const auto message = [&](int vocabulary) {
    return std::string(CheckTrainingData(ConfigOf({absl::StrCat("model.vocab_size=", vocabulary),
                                                   "data.document_mask=true", "data.tokenizer=" + gpt2}))
                           .message());
  };
  EXPECT_THAT(message(1000), AllOf(HasSubstr("data.document_mask: the tokenizer " + gpt2 +
                                             " ends a text with token "
                                             "1000, for which the model has no embedding (model.vocab_size: 1000)"),
                                   HasSubstr("--documents")));
  EXPECT_EQ(message(1001), "");
}

// Their marks say where documents begin, whatever the tokenizer.
TEST_F(TrainingDataTest, OfMarkedFilesTheEndOfTextIsNotInTheDigest) {
  LocalFileAccess files;
  auto writer = TokenFileWriter::Create(files, root_ / "marked.bin", {.bytes_per_token = 4, .has_marks = true});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->AppendMarked(std::vector<uint32_t>(200, 5)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const Config config =
      ConfigOf({"model.vocab_size=1100", "data.document_mask=true", "data.train=[" + (root_ / "marked.bin") + "]",
                "data.tokenizer=" + SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json"});
  const absl::StatusOr<TrainingData> data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->digest(), data->token_digest());
}

}  // namespace
}  // namespace holdfast
