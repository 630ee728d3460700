// Proves which tokens a microbatch holds, that the loader returns the same ones with any number of threads, and that it
// stops at once when asked to.

#include "framework/data/loader.h"

#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/data/token_test_files.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class LoaderTest : public ::testing::Test {
 protected:
  // Two files; token = position in the stream of both, so a sample shows where it comes from.
  void SetUp() override {
    std::vector<int32_t> tokens(1000);
    std::iota(tokens.begin(), tokens.end(), 0);
    WriteTokens(paths_[0], absl::MakeSpan(tokens).first(83));
    WriteTokens(paths_[1], absl::MakeSpan(tokens).subspan(100, 100));
  }
  Dataset Open(int64_t sequence) { return *Dataset::Open(paths_, sequence, 1000); }

  TemporaryDirectory directory_;
  std::vector<std::string> paths_ = {directory_ / "a.bin", directory_ / "b.bin"};
};

TEST_F(LoaderTest, SamplesNeverCrossFiles) {
  const Dataset data = Open(10);
  EXPECT_EQ(data.num_tokens(), 183);
  ASSERT_EQ(data.num_samples(), 8 + 9);  // (83 - 1) / 10 and (100 - 1) / 10
  std::vector<int32_t> inputs(10), targets(10);
  for (int64_t sample = 0; sample < data.num_samples(); ++sample) {
    ASSERT_TRUE(data.Read(sample, {absl::MakeSpan(inputs), absl::MakeSpan(targets)}).ok());
    const int64_t first = sample < 8 ? sample * 10 : 100 + (sample - 8) * 10;
    for (int64_t t = 0; t < 10; ++t) {
      EXPECT_EQ(inputs[t], first + t);
      EXPECT_EQ(targets[t], first + t + 1);
    }
  }
}

TEST_F(LoaderTest, MarksSayWhereDocumentsBeginAndWhatIsNotLearned) {
  constexpr uint32_t kFirst = kDocumentStart, kNot = kNotLearned;
  const std::vector<uint32_t> tokens = {10 | kFirst | kNot,
                                        11,
                                        12,
                                        20 | kFirst,
                                        21 | kNot,
                                        22,  // sample 0
                                        23,
                                        24,
                                        30 | kFirst | kNot,
                                        31,
                                        32,
                                        33,  // sample 1
                                        34};
  LocalFileAccess files;
  auto writer = *TokenFileWriter::Create(files, directory_ / "marked.bin", {.bytes_per_token = 4, .has_marks = true});
  ASSERT_TRUE(writer->AppendMarked(tokens).ok() && writer->Finish().ok());
  const auto data = Dataset::Open({directory_ / "marked.bin"}, 6, 35);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->has_documents());
  const Microbatch read = *ReadValidationMicrobatch(*data, 3, 0);
  using Row = std::vector<int32_t>;
  EXPECT_EQ(read.inputs, (Row{10, 11, 12, 20, 21, 22, 23, 24, 30, 31, 32, 33, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(read.targets, (Row{11, 12, -1, -1, 22, 23, 24, -1, 31, 32, 33, 34, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(read.document_begins, (Row{0, 0, 0, 3, 3, 3, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(read.document_ends, (Row{3, 3, 3, 6, 6, 6, 2, 2, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6}));
}

TEST_F(LoaderTest, WithoutMarksATokenMayEndDocuments) {
  WriteTokens(directory_ / "plain.bin", {5, 6, 0, 7, 0, 0, 8, 9, 1});
  EXPECT_FALSE(Dataset::Open({directory_ / "plain.bin"}, 4, 10)->has_documents());
  const Dataset data = *Dataset::Open({directory_ / "plain.bin"}, 4, 10, {.end_of_document = 0});
  const Microbatch read = *ReadValidationMicrobatch(data, 2, 0);
  using Row = std::vector<int32_t>;
  EXPECT_EQ(read.inputs, (Row{5, 6, 0, 7, 0, 0, 8, 9}));
  EXPECT_EQ(read.targets, (Row{6, 0, -1, 0, -1, -1, 9, 1}));
  EXPECT_EQ(read.document_begins, (Row{0, 0, 0, 3, 0, 1, 2, 2}));
  EXPECT_EQ(read.document_ends, (Row{3, 3, 3, 4, 1, 2, 4, 4}));
}

TEST_F(LoaderTest, RowsAreReadAsTheyWerePacked) {
  LocalFileAccess files;
  auto writer = *TokenFileWriter::Create(files, directory_ / "rows.bin", {.bytes_per_token = 4, .row_tokens = 4});
  ASSERT_TRUE(writer->Append({1, 2, 3, 4, 5, 6, 7, 8, 9}).ok() && writer->Finish().ok());
  EXPECT_EQ(Dataset::Open({directory_ / "rows.bin"}, 4, 10)->num_samples(), 2);
  const absl::Status other = Dataset::Measure({directory_ / "rows.bin"}, 3).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("set batch.sequence_length to 4"));
}

TEST_F(LoaderTest, ASizeIsToldWithoutReadingTokens) {
  const auto size = Dataset::Measure(paths_, 10);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->tokens, Open(10).num_tokens());
  EXPECT_EQ(size->samples, Open(10).num_samples());
  EXPECT_TRUE(absl::IsOutOfRange(Dataset::Open(paths_, 10, 50).status())) << "some tokens are too large for that";
  EXPECT_EQ(Dataset::Measure(paths_, 100).status().code(), Dataset::Open(paths_, 100, 1000).status().code());
  EXPECT_EQ(Dataset::Measure({}, 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LoaderTest, DigestIsOfTokensInOrderAndOfNothingElse) {
  const uint64_t digest = Open(10).digest();
  EXPECT_EQ(Open(20).digest(), digest);
  std::vector<int32_t> tokens = ReadTokens(paths_[1]);
  WriteTokens(directory_ / "copy.bin", tokens);
  EXPECT_EQ(Dataset::Open({paths_[0], directory_ / "copy.bin"}, 10, 1000)->digest(), digest);
  EXPECT_NE(Dataset::Open({paths_[1], paths_[0]}, 10, 1000)->digest(), digest);
  EXPECT_NE(Dataset::Open({paths_[0]}, 10, 1000)->digest(), digest);
  for (const size_t position : {0, 57, 99}) {
    ++tokens[position];
    WriteTokens(paths_[1], tokens);
    EXPECT_NE(Open(10).digest(), digest) << position;
    --tokens[position];
  }
}

TEST_F(LoaderTest, EdgesOfLength) {
  EXPECT_EQ(Open(82).num_samples(), 2);
  EXPECT_EQ(Open(83).num_samples(), 1);
  EXPECT_EQ(Open(99).num_samples(), 1);
  EXPECT_EQ(Open(1).num_samples(), 82 + 99);
  const absl::Status status = Dataset::Open(paths_, 100, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sequence_length"));
  EXPECT_EQ(Dataset::Open(paths_, 10, 199).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(Dataset::Open({}, 10, 199).ok());
  EXPECT_FALSE(Dataset::Open(paths_, 0, 199).ok());
}

TEST_F(LoaderTest, AnEpochOfMicrobatchesIsEverySampleOnce) {
  const Dataset data = Open(10);
  const SampleOrder order(data.num_samples(), 3, true);
  std::multiset<int32_t> firsts;
  for (int64_t step = 1; step <= 17; ++step) {  // 17 samples, 2 * 3 a step: 6 epochs in 17 steps
    for (int64_t index = 0; index < 2; ++index) {
      const Microbatch microbatch = *ReadMicrobatch(data, order, {2, 3}, step, index);
      EXPECT_EQ(microbatch.step, step);
      EXPECT_EQ(microbatch.index, index);
      for (int64_t row = 0; row < 3; ++row) firsts.insert(microbatch.inputs[row * 10]);
    }
  }
  EXPECT_EQ(std::set<int32_t>(firsts.begin(), firsts.end()).size(), 17);
  for (const int32_t first : firsts) EXPECT_EQ(firsts.count(first), 6);
}

TEST_F(LoaderTest, ValidationInOrderWithEmptyRowsAtTheEnd) {
  const Dataset data = Open(10);
  const Microbatch last = *ReadValidationMicrobatch(data, 4, 4);
  EXPECT_EQ(last.inputs[0], 180);
  EXPECT_EQ(last.targets[9], 190);
  for (size_t i = 10; i < 40; ++i) EXPECT_EQ(last.targets[i], -1);
  EXPECT_EQ(ReadValidationMicrobatch(data, 4, 1)->inputs[0], 40);
  EXPECT_EQ(ReadValidationMicrobatch(data, 4, 5)->targets, std::vector<int32_t>(40, -1));
}

TEST_F(LoaderTest, SameMicrobatchesForAnyThreads) {
  const Dataset data = Open(5);
  const SampleOrder order(data.num_samples(), 3, true);
  for (int threads = 0; threads <= 4; ++threads) {
    for (const int64_t ahead : {1, 7}) {
      Loader::Options options = {.shape = {6, 3}, .first_step = 2, .indices = {1, 2, 3, 4}};
      options.threads = threads;
      options.microbatches_ahead = ahead;
      Loader loader(data, order, options);
      for (int64_t step = 2; step < 40; ++step) {
        for (int64_t index = 1; index < 5; ++index) {
          const auto got = loader.Next(step, index, {});
          ASSERT_TRUE(got.ok());
          const Microbatch expected = *ReadMicrobatch(data, order, options.shape, step, index);
          ASSERT_EQ(got->inputs, expected.inputs);
          ASSERT_EQ(got->targets, expected.targets);
          ASSERT_EQ(got->step, step);
          ASSERT_EQ(got->index, index);
        }
      }
    }
  }
}

TEST_F(LoaderTest, StopsAtOnce) {
  const Dataset data = Open(5);
  const SampleOrder order(data.num_samples(), 3, true);
  for (const int threads : {0, 1, 3}) {
    Loader loader(data, order, {.shape = {1, 2}, .threads = threads});
    std::stop_source stop;
    ASSERT_TRUE(loader.Next(1, 0, stop.get_token()).ok());
    stop.request_stop();
    EXPECT_EQ(loader.Next(2, 0, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  }
}

TEST_F(LoaderTest, DestroyedAtAnyTime) {
  const Dataset data = Open(5);
  const SampleOrder order(data.num_samples(), 3, true);
  for (int round = 0; round < 300; ++round) {
    Loader loader(data, order, {.shape = {2, 2}, .threads = round % 5, .microbatches_ahead = 1 + round % 3});
    for (int64_t step = 1; step <= round % 4; ++step)
      ASSERT_TRUE(loader.Next(step, 0, {}).ok() && loader.Next(step, 1, {}).ok());
  }
}

}  // namespace
}  // namespace holdfast
