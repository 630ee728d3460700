// Data that cannot be read: the step that needs it gets the cause, with file and offset; what is read ahead is bounded;
// a loader that fails or waits ends at once.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <stop_token>

#include "framework/data/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/data/token_test_files.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The files of a storage.
class StorageAccess final : public FileAccess {
 public:
  explicit StorageAccess(Storage& storage) : storage_(storage) {}
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) override {
    return storage_.Open(path);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    return CreateObject(storage_, path);
  }
  std::string ScratchDirectory(const std::string& /*path*/) override { return testing::TempDir(); }

 private:
  Storage& storage_;
};

std::vector<int32_t> Count(int64_t tokens) {
  std::vector<int32_t> result(static_cast<size_t>(tokens));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

void WriteTokensTo(FileAccess& files, const std::string& path, absl::Span<const int32_t> tokens) {
  const auto writer = *TokenFileWriter::Create(files, path, 65536);
  ASSERT_TRUE(writer->Append(tokens).ok());
  const absl::Status finished = writer->Finish();
  ASSERT_TRUE(finished.ok()) << finished;
}

class DataFaults : public ::testing::Test {
 protected:
  void SetUp() override { WriteTokensTo(files_, "train.bin", Count(1000)); }
  absl::StatusOr<Dataset> Open() { return Dataset::Open({"train.bin"}, 10, 65536, {.files = &files_}); }
  void FailReads(StorageFault fault, int64_t skip, int64_t count = 1) {
    storage_.Inject(
        {.operation = StorageOperation::kReadAt, .fault = fault, .name = "train.bin", .skip = skip, .count = count});
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Storage> memory_ = MakeMemoryStorage(directory_.path());
  FaultStorage storage_{*memory_};
  StorageAccess files_{storage_};
};

TEST_F(DataFaults, TokenFilesLieInAnyStorage) {
  const Dataset data = *Open();
  const SampleOrder order(data.num_samples(), 1, false);
  const Microbatch microbatch = *ReadMicrobatch(data, order, {1, 3}, 1, 0);
  EXPECT_EQ(microbatch.inputs, Count(30));
  EXPECT_TRUE(absl::IsAlreadyExists(TokenFileWriter::Create(files_, "train.bin", 10).status()));
}

TEST_F(DataFaults, EveryReadOfOpeningMayFail) {
  const int64_t before = storage_.CallsOf(StorageOperation::kReadAt);
  ASSERT_TRUE(Open().ok());
  const int64_t reads = storage_.CallsOf(StorageOperation::kReadAt) - before;
  EXPECT_GE(reads, 3);  // header, index, blocks
  for (int64_t skip = 0; skip < reads; ++skip) {
    for (const StorageFault fault : {StorageFault::kIoError, StorageFault::kShortRead}) {
      FailReads(fault, skip);
      const absl::Status status = Open().status();
      EXPECT_FALSE(status.ok()) << skip;
      EXPECT_THAT(std::string(status.message()), HasSubstr("train.bin")) << skip;
      storage_.ClearFaults();
    }
  }
}

TEST_F(DataFaults, TheStepThatNeedsWhatCannotBeReadGetsTheCause) {
  for (const StorageFault fault : {StorageFault::kIoError, StorageFault::kShortRead, StorageFault::kUnavailable}) {
    for (const int threads : {0, 1, 4}) {
      const Dataset data = *Open();
      const SampleOrder order(data.num_samples(), 1, false);
      FailReads(fault, 7, std::numeric_limits<int64_t>::max());  // the eighth sample and all after it
      Loader loader(data, order, {.shape = {1, 3}, .threads = threads});
      absl::Status status;
      int64_t step = 0;
      while (status.ok() && step < 3) status = loader.Next(++step, 0, {}).status();
      EXPECT_TRUE(step == 3 || threads > 1) << step;  // of several threads any may be the eighth to read
      EXPECT_TRUE(fault == StorageFault::kShortRead ? absl::IsDataLoss(status) : absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("train.bin at byte ")) << threads;
      storage_.ClearFaults();
    }
  }
}

TEST_F(DataFaults, OfTwoRowsThatFailTheFirstIsNamed) {
  const Dataset data = *Open();
  const SampleOrder order(data.num_samples(), 1, false);
  FailReads(StorageFault::kIoError, 0, std::numeric_limits<int64_t>::max());
  for (const int threads : {0, 1, 3}) {
    Loader loader(data, order, {.shape = {1, 3}, .threads = threads});
    EXPECT_THAT(std::string(loader.Next(1, 0, {}).status().message()), HasSubstr("train.bin at byte 1024")) << threads;
  }
}

TEST_F(DataFaults, ValidationGetsTheCauseToo) {
  const Dataset data = *Open();
  FailReads(StorageFault::kIoError, 1);
  const absl::Status status = ReadValidationMicrobatch(data, 4, 0).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("train.bin at byte 1044"));
}

TEST(DataFaultsLocal, AFileThatIsCutShortWhileTrainingIsAnErrorAndNotACrash) {
  const TemporaryDirectory directory;
  WriteTokens(directory / "train.bin", Count(60'000));
  const Dataset data = *Dataset::Open({directory / "train.bin"}, 10, 65536);
  const SampleOrder order(data.num_samples(), 1, false);
  std::filesystem::resize_file(directory / "train.bin", 1024 + 40);  // the first two samples, but for their last target
  Loader loader(data, order, {.shape = {1, 1}, .threads = 1});
  EXPECT_TRUE(loader.Next(1, 0, {}).ok());
  const absl::Status status = loader.Next(2, 0, {}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(directory / "train.bin"), HasSubstr("byte 1064")));
}

struct RottenToken {
  TokenFileKind kind;
  uint32_t stored, shown;
};

TEST(DataFaultsLocal, ATokenBeyondTheVocabularyIsAnErrorOfItsSamplesWhereverItLies) {
  constexpr int64_t kVocabulary = 100, kAt = 20;  // the last target of sample 1 and the first input of sample 2
  const TokenFileKind narrow{.bytes_per_token = 2}, wide{.bytes_per_token = 4},
      marked{.bytes_per_token = 4, .has_marks = true};
  for (const RottenToken& token :
       {RottenToken{narrow, 100, 100}, RottenToken{narrow, 0xffff, 0xffff}, RottenToken{wide, 100, 100},
        RottenToken{wide, kDocumentStart | 5, kDocumentStart | 5}, RottenToken{wide, kNotLearned | 5, kNotLearned | 5},
        RottenToken{marked, kDocumentStart | 100, 100}, RottenToken{marked, kTokenBits, kTokenBits}}) {
    SCOPED_TRACE(testing::Message() << token.kind.bytes_per_token << " bytes, token " << token.stored);
    const TemporaryDirectory directory;
    const std::string path = directory / "train.bin";
    LocalFileAccess files;
    const auto writer = *TokenFileWriter::Create(files, path, token.kind);
    std::vector<int32_t> tokens = Count(41);
    tokens[3] = kVocabulary - 1;
    ASSERT_TRUE(writer->Append(tokens).ok());
    ASSERT_TRUE(writer->Finish().ok());
    const Dataset data = *Dataset::Open({path}, 10, kVocabulary);
    const int64_t byte = 1024 + kAt * token.kind.bytes_per_token;
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(byte);
      file.write(reinterpret_cast<const char*>(&token.stored), token.kind.bytes_per_token);
    }
    std::vector<int32_t> inputs(10), targets(10);
    const SampleView sample{.inputs = absl::MakeSpan(inputs), .targets = absl::MakeSpan(targets)};
    EXPECT_TRUE(data.Read(0, sample).ok()) << "the largest of the vocabulary";
    EXPECT_TRUE(data.Read(3, sample).ok());
    for (const int64_t index : {1, 2}) {
      const absl::Status status = data.Read(index, sample);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat(path, " at byte ", byte, ": token ", token.shown, " is beyond")));
    }
  }
}

/// Reads wait until they are let go on, and say how many there are at the same time.
class Gate {
 public:
  /// Whether it was let go on, and not stopped.
  bool Pass(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++waiting_);
    ++begun_;
    changed_.notify_all();
    const bool passed = changed_.wait_for(lock, stop, std::chrono::minutes(2), [this] { return open_; });
    stopped_ += !passed && stop.stop_requested() ? 1 : 0;
    --waiting_;
    return passed;
  }
  void WaitForReads(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= count; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int most() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  int begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  /// That ended by a stop.
  int stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ = false;
  int waiting_ = 0, most_ = 0, begun_ = 0, stopped_ = 0;
};

/// A file behind a server: each range is a request that takes its time.
class SlowFile final : public RandomAccessFile {
 public:
  SlowFile(std::shared_ptr<const RandomAccessFile> inner, Gate& gate) : inner_(std::move(inner)), gate_(gate) {}
  const std::string& path() const override { return inner_->path(); }
  uint64_t size() const override { return inner_->size(); }
  int reads_at_once() const override { return 8; }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    return ReadUnlessStopped(offset, out, {});
  }
  absl::Status ReadUnlessStopped(uint64_t offset, absl::Span<std::byte> out,
                                 const std::stop_token& stop) const override {
    if (out.size() == 22 && !gate_.Pass(stop)) return absl::CancelledError("stopped");  // a sample of 11 tokens
    return inner_->ReadAt(offset, out);
  }

 private:
  const std::shared_ptr<const RandomAccessFile> inner_;
  Gate& gate_;
};

class SlowAccess final : public FileAccess {
 public:
  explicit SlowAccess(Gate& gate) : gate_(gate) {}
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) override {
    auto file = local_.Open(path);
    if (!file.ok()) return file.status();
    return std::make_shared<const SlowFile>(*std::move(file), gate_);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override { return local_.Create(path); }
  std::string ScratchDirectory(const std::string& path) override { return local_.ScratchDirectory(path); }

 private:
  LocalFileAccess local_;
  Gate& gate_;
};

TEST(SlowData, SequencesAreReadManyAtOnceAndSoManyAheadAndNoMore) {
  const TemporaryDirectory directory;
  WriteTokens(directory / "train.bin", Count(10'000));
  Gate gate;
  SlowAccess files(gate);
  const Dataset data = *Dataset::Open({directory / "train.bin"}, 10, 65536, {.files = &files});
  EXPECT_EQ(data.reads_at_once(), 8);
  const SampleOrder order(data.num_samples(), 1, true);
  Loader loader(data, order, {.shape = {2, 3}, .threads = 1, .microbatches_ahead = 1});
  gate.WaitForReads(8);  // of three microbatches: one of them alone would keep only three threads busy
  EXPECT_EQ(gate.most(), 8);
  gate.Open();
  for (int64_t step = 1; step <= 5; ++step) {
    for (int64_t index = 0; index < 2; ++index) {
      const auto got = loader.Next(step, index, {});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->inputs, ReadMicrobatch(data, order, {2, 3}, step, index)->inputs);
    }
  }
  gate.WaitForReads(8);
  // 10 microbatches were asked for and read once more to compare; 6 may be on their way (16 sequences, rounded up).
  EXPECT_LE(gate.begun(), 2 * 30 + 18);
}

TEST(SlowData, AStopEndsTheWaitForAServerThatDoesNotAnswer) {
  const TemporaryDirectory directory;
  WriteTokens(directory / "train.bin", Count(1000));
  Gate gate;
  SlowAccess files(gate);
  const Dataset data = *Dataset::Open({directory / "train.bin"}, 10, 65536, {.files = &files});
  const SampleOrder order(data.num_samples(), 1, true);
  std::stop_source stop;
  {
    Loader loader(data, order, {.shape = {1, 1}});
    gate.WaitForReads(1);
    stop.request_stop();
    EXPECT_TRUE(absl::IsCancelled(loader.Next(1, 0, stop.get_token()).status()));
  }  // which ends what it was reading ahead
  EXPECT_EQ(gate.stopped(), gate.begun());
  EXPECT_TRUE(absl::IsCancelled(ReadMicrobatch(data, order, {1, 1}, 1, 0, stop.get_token()).status()));
  EXPECT_TRUE(absl::IsCancelled(ReadValidationMicrobatch(data, 1, 0, stop.get_token()).status()));
}

}  // namespace
}  // namespace holdfast
