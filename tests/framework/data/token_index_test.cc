// The index of a token file says what reading all of the file would say; an index that is damaged or of another file is
// found, and named; a file without one works.

#include "framework/data/token_index.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "framework/data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/data/token_test_files.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTokensOfBlock = kTokenBlockBytes / 2;

class TokenIndexTest : public ::testing::Test {
 protected:
  // Five blocks, the last one of 17 tokens.
  void SetUp() override {
    tokens_.resize(4 * kTokensOfBlock + 17);
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int32_t>(i * 2654435761u % 50'000);
    tokens_[1234] = 50'007;
    WriteTokens(path_, tokens_);
  }

  void ChangeByte(int64_t offset) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const auto old = static_cast<char>(file.get());
    file.seekp(offset);
    file.put(static_cast<char>(old ^ 1));
  }
  TokenIndex Index() { return *ReadTokenIndex(files_, path_); }
  absl::StatusOr<Dataset> OpenDataset(int64_t vocab_size = 65536) {
    return Dataset::Open({path_}, 64, vocab_size,
                         {.on_scan = [this](const std::string& path, int64_t done, int64_t total) {
                           scanned_ = path;
                           scanned_bytes_ = done;
                           EXPECT_LE(done, total);
                         }});
  }

  TemporaryDirectory directory_;
  LocalFileAccess files_;
  std::string path_ = directory_ / "train.bin";
  std::vector<int32_t> tokens_;
  std::string scanned_;
  int64_t scanned_bytes_ = 0;
};

TEST_F(TokenIndexTest, SaysWhatIsInTheFile) {
  const std::string stored = ReadText(path_).substr(1024);
  const TokenIndex index = Index();
  EXPECT_EQ(index.num_tokens, static_cast<int64_t>(tokens_.size()));
  EXPECT_EQ(index.bytes_per_token, 2);
  EXPECT_EQ(index.largest, 50'007u);
  EXPECT_EQ(index.digest, XXH3_64bits(stored.data(), stored.size()));
  ASSERT_EQ(index.blocks.size(), 5u);
  for (size_t block = 0; block < 5; ++block) {
    const std::string bytes = stored.substr(block * kTokenBlockBytes, kTokenBlockBytes);
    EXPECT_EQ(index.blocks[block], XXH3_64bits(bytes.data(), bytes.size())) << block;
  }
  EXPECT_EQ(*IndexTokens(**OpenTokens(path_)), index);
}

TEST_F(TokenIndexTest, OfWideTokensAndOfNone) {
  WriteTokens(path_, {1, 70'000, 2}, 100'000);
  EXPECT_EQ(Index().largest, 70'000u);
  EXPECT_EQ(Index().bytes_per_token, 4);
  EXPECT_EQ(*IndexTokens(**OpenTokens(path_)), Index());
  WriteTokens(path_, {});
  EXPECT_THAT(Index().blocks, IsEmpty());
  EXPECT_EQ(*IndexTokens(**OpenTokens(path_)), Index());
}

TEST_F(TokenIndexTest, BytesAreThoseOfTheReadme) {
  WriteTokens(path_, {'H', 'i', '!'});
  const std::string bytes = ReadText(TokenIndexPath(path_));
  ASSERT_EQ(bytes.size(), 56u);
  EXPECT_EQ(bytes.substr(0, 8), "HFTOKIX1");
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, &bytes[at], sizeof(value));
    return value;
  };
  EXPECT_EQ(word(8), 1u);
  EXPECT_EQ(word(12), 2u);
  EXPECT_EQ(word(16), 3u);
  EXPECT_EQ(word(32), uint32_t{'i'});
  EXPECT_EQ(word(36), 1u << 20);
  EXPECT_EQ(bytes.substr(24, 8), bytes.substr(40, 8)) << "of one block, the digest is that of all tokens";
  EXPECT_EQ(*ParseTokenIndex(bytes, "x"), Index());
  EXPECT_EQ(FormatTokenIndex(Index()), bytes);
}

TEST_F(TokenIndexTest, EveryDamagedByteIsFound) {
  const std::string good = FormatTokenIndex(Index());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    const absl::Status status = ParseTokenIndex(bad, "some.index").status();
    EXPECT_FALSE(status.ok()) << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr("some.index"));
  }
  for (const size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{39}, size_t{47}, good.size() - 1}) {
    EXPECT_FALSE(ParseTokenIndex(good.substr(0, size), "x").ok()) << size;
  }
  EXPECT_FALSE(ParseTokenIndex(good + '\0', "x").ok());
}

TEST_F(TokenIndexTest, ARunReadsTheIndexAndNotTheFile) {
  const auto dataset = OpenDataset();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(scanned_, "");
  const uint64_t digest = dataset->digest();
  std::filesystem::remove(TokenIndexPath(path_));
  EXPECT_EQ(OpenDataset()->digest(), digest) << "with an index or without, the data are the same";
  EXPECT_EQ(scanned_, path_) << "and that it is read as a whole is said";
  EXPECT_EQ(scanned_bytes_, static_cast<int64_t>(2 * tokens_.size()));
}

TEST_F(TokenIndexTest, TokensBeyondTheVocabularyAreFoundByTheIndex) {
  EXPECT_TRUE(OpenDataset(50'008).ok());
  const absl::Status status = OpenDataset(50'007).status();
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 50007 at position 1234 "));
}

TEST_F(TokenIndexTest, AnotherFileOfTheSameSizeIsRefused) {
  const std::string index = ReadText(TokenIndexPath(path_));
  std::rotate(tokens_.begin(), tokens_.begin() + 1, tokens_.end());
  WriteTokens(path_, tokens_);
  WriteText(TokenIndexPath(path_), index);
  const absl::Status status = OpenDataset().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path_), HasSubstr("block 0"), HasSubstr("holdfast data index")));
}

TEST_F(TokenIndexTest, AFileOfAnotherLengthIsRefused) {
  const std::string index = ReadText(TokenIndexPath(path_));
  tokens_.resize(100);
  WriteTokens(path_, tokens_);
  WriteText(TokenIndexPath(path_), index);
  EXPECT_THAT(std::string(OpenDataset().status().message()),
              HasSubstr("it has 100 tokens of 2 bytes, the index 20971"));
}

TEST_F(TokenIndexTest, ACopyThatStoppedBeforeItsEndIsRefused) {
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1024 + 3 * kTokenBlockBytes + 1000);  // zeros to the end, as a preallocated file has
  file << std::string(2 * tokens_.size() - 3 * kTokenBlockBytes - 1000, '\0');
  file.close();
  EXPECT_THAT(std::string(OpenDataset().status().message()), HasSubstr("the tokens of block"));
}

TEST_F(TokenIndexTest, SamplesAreOfTheWholeFile) {
  ChangeByte(1024 + 2 * kTokenBlockBytes + 5);  // in neither the first block nor the last
  const auto file = *OpenTokens(path_);
  bool found = false;
  for (uint64_t seed = 0; seed < 64; ++seed) found = found || !CheckSomeBlocks(*file, Index(), 1, seed).ok();
  EXPECT_TRUE(found);
  EXPECT_TRUE(CheckSomeBlocks(*file, Index(), 0, 0).ok()) << "without samples it is the ends that are compared";
}

TEST_F(TokenIndexTest, ComparingAllOfItNamesEveryBlockThatChanged) {
  EXPECT_THAT(*CompareWithIndex(**OpenTokens(path_), Index()), IsEmpty());
  ChangeByte(1024 + kTokenBlockBytes);
  ChangeByte(1024 + 4 * kTokenBlockBytes + 33);
  EXPECT_THAT(*CompareWithIndex(**OpenTokens(path_), Index()), ElementsAre(1, 4));
}

TEST_F(TokenIndexTest, ADamagedIndexIsNoReasonToReadOn) {
  WriteText(TokenIndexPath(path_), ReadText(TokenIndexPath(path_)).substr(0, 60));
  const absl::Status status = OpenDataset().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(TokenIndexPath(path_)));
}

}  // namespace
}  // namespace holdfast
