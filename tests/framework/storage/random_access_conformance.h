#pragma once
// What every RandomAccessFile promises, as one suite. Include it from one source file of a test program, and there:
//
//   INSTANTIATE_TEST_SUITE_P(Local, RandomAccessConformance, testing::Values(RandomAccessBedFactory{"File", MakeBed}),
//                            RandomAccessBedName);

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "framework/storage/random_access_file.h"
#include "tests/framework/storage/pattern_bytes.h"

namespace holdfast {

/// A place for one file.
struct RandomAccessBed {
  /// Puts these bytes there, over what is there now.
  std::function<void(const std::string& contents)> put;
  std::function<absl::StatusOr<std::shared_ptr<const RandomAccessFile>>()> open;
  std::shared_ptr<void> keep_alive;  // outlives all that was opened
};

struct RandomAccessBedFactory {
  std::string label;
  std::function<RandomAccessBed()> make;
};

inline std::string RandomAccessBedName(const testing::TestParamInfo<RandomAccessBedFactory>& info) {
  return info.param.label;
}

class RandomAccessConformance : public testing::TestWithParam<RandomAccessBedFactory> {
 protected:
  void SetUp() override { bed_ = GetParam().make(); }

  std::shared_ptr<const RandomAccessFile> Open() {
    auto file = bed_.open();
    EXPECT_TRUE(file.ok()) << file.status();
    return file.value_or(nullptr);
  }
  static absl::Status Read(const RandomAccessFile& file, uint64_t offset, std::string* out) {
    return file.ReadAt(offset, absl::MakeSpan(reinterpret_cast<std::byte*>(out->data()), out->size()));
  }

  RandomAccessBed bed_;
};

TEST_P(RandomAccessConformance, WhatIsNotThereIsNotFound) {
  if (IsSkipped()) return;  // where `make` finds that it lacks something
  EXPECT_EQ(bed_.open().status().code(), absl::StatusCode::kNotFound);
}

TEST_P(RandomAccessConformance, ReadsRanges) {
  if (IsSkipped()) return;
  const std::string contents = PatternBytes(70'000, 1);
  bed_.put(contents);
  const auto file = Open();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->size(), contents.size());
  EXPECT_FALSE(file->path().empty());
  EXPECT_GE(file->reads_at_once(), 1);
  for (const auto& [offset, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {0, 70'000}, {69'999, 1}, {4095, 2}, {12'345, 50'000}, {70'000, 0}, {5, 0}}) {
    std::string out(size, 'x');
    const absl::Status status = Read(*file, offset, &out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out == contents.substr(offset, size)) << offset << " " << size;
  }
  EXPECT_EQ(*ReadWhole(*file, contents.size()), contents);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadWhole(*file, contents.size() - 1).status()));
}

TEST_P(RandomAccessConformance, ReadingBeyondTheEndIsDataLossThatNamesFileAndOffset) {
  if (IsSkipped()) return;
  bed_.put("0123456789");
  const auto file = Open();
  ASSERT_NE(file, nullptr);
  for (const auto& [offset, size] :
       std::vector<std::pair<uint64_t, size_t>>{{0, 11}, {9, 2}, {10, 1}, {11, 1}, {1ull << 40, 4}, {~0ull, 1}}) {
    std::string out(size, 'x');
    const absl::Status status = Read(*file, offset, &out);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), file->path())) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), std::to_string(offset))) << status;
  }
}

TEST_P(RandomAccessConformance, WhatIsReplacedIsNeverReadAsIfItWereTheOldOne) {
  if (IsSkipped()) return;
  const std::string old_contents = PatternBytes(5000, 2), new_contents = PatternBytes(5000, 3);
  bed_.put(old_contents);
  const auto file = Open();
  ASSERT_NE(file, nullptr);
  bed_.put(new_contents);
  std::string out(1000, 'x');
  const absl::Status status = Read(*file, 2000, &out);
  if (status.ok()) {
    EXPECT_TRUE(out == old_contents.substr(2000, 1000));
  } else {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), file->path())) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "2000")) << status;
  }
  EXPECT_TRUE(*ReadWhole(*Open(), 5000) == new_contents) << "opened anew, it is the new one";
}

TEST_P(RandomAccessConformance, ManyThreadsReadAtOnce) {
  if (IsSkipped()) return;
  const std::string contents = PatternBytes(100'000, 4);
  bed_.put(contents);
  const auto file = Open();
  ASSERT_NE(file, nullptr);
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 20; ++i) {
        const size_t offset = (thread * 7919 + i * 4801) % 90'000;
        std::string out(2050, 'x');
        const absl::Status status = Read(*file, offset, &out);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(out == contents.substr(offset, out.size()));
      }
    });
  }
}

}  // namespace holdfast
