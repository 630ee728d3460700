// Proves that the fault-injecting storage does what its rules say and nothing else.

#include "tests/framework/storage/fault_storage.h"

#include <gtest/gtest.h>

#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

using Code = absl::StatusCode;
using Operation = StorageOperation;
using Fault = StorageFault;

class FaultStorageTest : public testing::Test {
 protected:
  FaultStorageTest() { memory_->Create("old", "0123456789").IgnoreError(); }

  // Every operation once, in the order of StorageOperation.
  std::vector<Code> DoAll() {
    std::byte bytes[4];
    std::vector<Code> codes = {storage_.List("").status().code(), storage_.Size("old").status().code(),
                               storage_.ReadAt("old", 0, absl::MakeSpan(bytes)).code(),
                               storage_.Create("created", "x").code()};
    const auto file = storage_.Stage("staged", 1);
    codes.push_back(file.status().code());
    codes.push_back(file.ok() ? (*file)->Reserve(1).code() : Code::kOk);
    codes.push_back(file.ok() ? (*file)->Commit().code() : Code::kOk);
    codes.push_back(storage_.Delete("old").code());
    codes.push_back(storage_.Sweep().code());
    return codes;
  }
  std::string Read(const std::string& name, size_t size) {
    std::string out(size, '?');
    last_ = storage_.ReadAt(name, 0, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), size));
    return out;
  }
  bool Exists(const std::string& name) { return memory_->Size(name).ok(); }

  TestDirectory directory_;
  std::unique_ptr<Storage> memory_ = MakeMemoryStorage(directory_.path());
  FaultStorage storage_{*memory_};
  absl::Status last_;
};

constexpr int kOperations = static_cast<int>(Operation::kSweep) + 1;

class FaultStorageCases : public FaultStorageTest,
                          public testing::WithParamInterface<std::tuple<int, std::pair<Fault, Code>>> {};

TEST_P(FaultStorageCases, FailsWhatItIsToldAndNothingElse) {
  const auto [operation, fault] = GetParam();
  storage_.Inject({.operation = static_cast<Operation>(operation), .fault = fault.first});
  std::vector<Code> expected(kOperations, Code::kOk);
  expected[static_cast<size_t>(operation)] = fault.second;
  EXPECT_EQ(DoAll(), expected);
  const bool refused = fault.second != Code::kOk && fault.first != Fault::kLostAnswer;
  const auto is = [op = operation](Operation other) { return op == static_cast<int>(other); };
  EXPECT_EQ(Exists("created"), !(refused && is(Operation::kCreate)));
  EXPECT_EQ(Exists("old"), refused && is(Operation::kDelete));
  EXPECT_EQ(Exists("staged"),
            !(refused && is(Operation::kCommit)) && !(fault.second != Code::kOk && is(Operation::kStage)));
}

INSTANTIATE_TEST_SUITE_P(All, FaultStorageCases,
                         testing::Combine(testing::Range(0, kOperations),
                                          testing::Values(std::pair{Fault::kIoError, Code::kUnavailable},
                                                          std::pair{Fault::kNoSpace, Code::kResourceExhausted},
                                                          std::pair{Fault::kNoPermission, Code::kPermissionDenied},
                                                          std::pair{Fault::kUnavailable, Code::kUnavailable},
                                                          std::pair{Fault::kLostAnswer, Code::kUnavailable},
                                                          std::pair{Fault::kSlow, Code::kOk})));

TEST_F(FaultStorageTest, CountsSkipsAndNames) {
  storage_.Inject({.operation = Operation::kCreate, .fault = Fault::kNoSpace, .name = "man", .skip = 1, .count = 2});
  EXPECT_TRUE(storage_.Create("a/manifest", "").ok());
  EXPECT_TRUE(storage_.Create("a/other", "").ok());
  EXPECT_EQ(storage_.Create("b/manifest", "").code(), Code::kResourceExhausted);
  EXPECT_TRUE(storage_.Create("b/other", "").ok());
  EXPECT_EQ(storage_.Create("b/manifest", "").code(), Code::kResourceExhausted);
  EXPECT_TRUE(storage_.Create("b/manifest", "").ok());
  storage_.Inject({.operation = Operation::kCreate, .fault = Fault::kNoSpace});
  EXPECT_FALSE(storage_.Create("c", "").ok());
  storage_.ClearFaults();
  EXPECT_TRUE(storage_.Create("c", "").ok());
}

TEST_F(FaultStorageTest, ListsWhatWasDone) {
  storage_.Inject({.operation = Operation::kReadAt, .fault = Fault::kIoError});
  ASSERT_TRUE(storage_.Create("new", "123").ok());
  Read("old", 4);
  const std::vector<StorageCall> calls = storage_.Calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].operation, Operation::kCreate);
  EXPECT_EQ(calls[0].name, "new");
  EXPECT_EQ(calls[0].bytes, 3u);
  EXPECT_FALSE(calls[0].fault);
  EXPECT_EQ(calls[1].bytes, 4u);
  EXPECT_EQ(calls[1].fault, Fault::kIoError);
  EXPECT_EQ(storage_.CallsOf(Operation::kReadAt), 1);
  EXPECT_EQ(storage_.CallsOf(Operation::kDelete), 0);
}

TEST_F(FaultStorageTest, FlipsOneBitAndReadsShort) {
  storage_.Inject({.operation = Operation::kReadAt, .fault = Fault::kBitFlip, .count = 1, .bit = 10});
  storage_.Inject({.operation = Operation::kReadAt, .fault = Fault::kShortRead, .count = 1});
  EXPECT_EQ(Read("old", 4), "0523");  // '1' = 0x31, '5' = 0x35
  EXPECT_TRUE(last_.ok()) << last_;
  EXPECT_EQ(Read("old", 4), "01??");
  EXPECT_EQ(last_.code(), Code::kDataLoss);
  EXPECT_EQ(Read("old", 4), "0123");
}

TEST_F(FaultStorageTest, AStagedFileMayOutliveItsStorage) {
  auto storage = std::make_unique<FaultStorage>(*memory_);
  auto file = storage->Stage("late", 1);
  storage.reset();
  EXPECT_TRUE((*file)->Commit().ok());
  EXPECT_TRUE(Exists("late"));
}

}  // namespace
}  // namespace holdfast
