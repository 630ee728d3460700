// What is done to checkpoints beside training: which one is meant, what differs between two, statistics of values,
// damage, what may be deleted, and who uses them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_diff.h"
#include "checkpoint/admin/checkpoint_statistics.h"
#include "checkpoint/admin/checkpoint_target.h"
#include "checkpoint/admin/checkpoint_text.h"
#include "checkpoint/admin/checkpoint_values.h"
#include "checkpoint/admin/checkpoint_verify.h"
#include "checkpoint/admin/fence_owner.h"
#include "checkpoint/admin/retention_plan.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/stored_layout.h"
#include "framework/base/format_bytes.h"
#include "framework/base/process_id.h"
#include "tests/checkpoint/sharded/flat_checkpoint.h"
#include "tests/checkpoint/sharded/three_planes.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointAdminTest : public testing::Test {
 protected:
  CheckpointAdminTest() : place_(OpenCheckpointPlace(root_.path(), {.access = PlaceAccess::kCreate}).value()) {}

  void Make(const CheckpointName& name, const std::vector<StoredTensor>& tensors = TwoTensors()) {
    FlatCheckpoint checkpoint = FlatCheckpoint::Make(name, tensors, GridOf(LayoutOf(tensors)), {.shards = 2});
    const absl::Status status = checkpoint.Store(*place_.storage);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::unique_ptr<CheckpointReader> Open(const CheckpointName& name) {
    return CheckpointReader::Open(*place_.storage, name).value();
  }
  Catalog Scan() { return ScanCheckpoints(*place_.storage).value(); }

  TemporaryDirectory root_;
  CheckpointPlace place_;
};

TEST_F(CheckpointAdminTest, TheNewestUnlessAStepIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Make({5, 2}));
  ASSERT_NO_FATAL_FAILURE(Make({9, 2}));
  const std::string where = root_.path();
  EXPECT_EQ((*OpenCheckpoint({.where = where, .step = {}, .place = {}}))->entry->manifest.name.step, 9);
  EXPECT_EQ((*OpenCheckpoint({.where = where, .step = 5, .place = {}}))->entry->manifest.name.step, 5);
  const auto missing = OpenCheckpoint({.where = where, .step = 7, .place = {}});
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("there are steps 9, 5"));
}

// An older one in its place is said, as its weights are not those that are asked for.
TEST_F(CheckpointAdminTest, WhatIsNewerAndDamagedIsSaidOfTheNewest) {
  for (const int64_t step : {5, 7, 9}) ASSERT_NO_FATAL_FAILURE(Make({step, 2}));
  const auto said = [&](const std::string& place, std::optional<int64_t> step) {
    testing::internal::CaptureStderr();
    const auto opened = OpenCheckpoint({.where = place, .step = step, .place = {}});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(root_.path(), {}), "");
  const std::string newest = root_ / CheckpointName{9, 2}.ToString();
  std::filesystem::resize_file(newest + "/shard-0-of-2.h5", 10);
  const std::string warning = said(root_.path(), {});
  EXPECT_THAT(warning, AllOf(HasSubstr("step-0000000009-g2 is newer and damaged (shard-0-of-2.h5 has 10 bytes "),
                             HasSubstr("; the newest that can be used is step-0000000007-g2")));
  EXPECT_EQ(said(root_.path(), 7), "") << "it is the one that is meant";
  EXPECT_EQ(said(root_ / CheckpointName{5, 2}.ToString(), {}), "");
  std::filesystem::remove(newest + "/manifest.json");
  EXPECT_EQ(said(root_.path(), {}), "") << "it is being written, or never was finished";
}

TEST_F(CheckpointAdminTest, TheLayoutOfAManifestHasItsTensors) {
  const ParameterLayout layout = LayoutOf(TwoTensors());
  EXPECT_EQ(StoredTensorsOf(ThreePlanes(layout)), TwoTensors());
  Manifest manifest;
  manifest.tensors = TwoTensors();
  EXPECT_EQ(LayoutOf(manifest)->chunks().size(), layout.chunks().size());
  manifest.tensors[1].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_TRUE(absl::IsInvalidArgument(LayoutOf(manifest).status()));
}

// Of checkpoints that were written when shorter chunks were filled up.
TEST_F(CheckpointAdminTest, TheSummarySaysWhatFillsUpChunks) {
  std::mt19937_64 random(1);
  const std::vector<StoredTensor> tensors = TwoTensors();
  FlatCheckpoint checkpoint =
      FlatCheckpoint::Make({5, 1}, tensors, RandomGrid(random, tensors, 20), {.scattered = true});
  ASSERT_TRUE(checkpoint.Store(*place_.storage).ok());
  int64_t padding = 0;
  for (const StoredChunk& chunk : checkpoint.chunks[0]) {
    const StoredTensor& tensor = tensors[static_cast<size_t>(chunk.tensor)];
    padding += chunk.padding_rows * tensor.cols() * static_cast<int64_t>(sizeof(float) * tensor.planes.size());
  }
  ASSERT_GT(padding, 0);
  const auto opened = OpenCheckpoint({.where = root_.path(), .step = {}, .place = {}});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(SummaryText(*(*opened)->entry, *(*opened)->reader, "here", 1.7e9),
              HasSubstr(absl::StrCat(", ", FormatBytes(static_cast<double>(padding)),
                                     " of it zeros that fill up tensors' last chunks, 0 of ")));
}

TEST_F(CheckpointAdminTest, ValuesAreTheSameInAnyOrder) {
  const std::vector<StoredTensor> tensors = {{"a", {300, 250}}, {"b", {17}}, {"c", {400, 400}}};
  ASSERT_NO_FATAL_FAILURE(Make({5, 1}, tensors));
  const auto reader = Open({5, 1});
  const ParameterLayout layout = LayoutOf(tensors);
  const int64_t elements = layout.elements();
  std::vector<float> whole(static_cast<size_t>(elements));
  CheckpointValues in_order(*reader, layout, 2), jumping(*reader, layout, 2);
  ASSERT_TRUE(in_order.Read(0, absl::MakeSpan(whole)).ok());
  for (int64_t first = elements - 90'000; first >= 0; first -= 7'777) {
    std::vector<float> part(first % 2 == 0 ? 90'000 : 5'000);
    ASSERT_TRUE(jumping.Read(first, absl::MakeSpan(part)).ok());
    ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
}

TEST_F(CheckpointAdminTest, EqualCheckpointsDoNotDiffer) {
  ASSERT_NO_FATAL_FAILURE(Make({5, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({5, 2}));
  const auto difference = DiffCheckpoints(*Open({5, 1}), *Open({5, 2}), 2, nullptr);
  ASSERT_TRUE(difference.ok()) << difference.status();
  EXPECT_EQ(difference->common, 2u);
  EXPECT_THAT(difference->mismatches, IsEmpty());
  EXPECT_THAT(difference->of_tensor, IsEmpty()) << "equal digests are not read";
}

TEST_F(CheckpointAdminTest, ADifferenceIsCountedAndPlaced) {
  // Values follow a tensor's number: "a" is another one in the second.
  ASSERT_NO_FATAL_FAILURE(Make({5, 1}, {{"a", {30, 20}}, {"b", {17}}, {"c", {4, 4}}, {"d", {5}}}));
  ASSERT_NO_FATAL_FAILURE(
      Make({5, 2}, {{"x", {3}}, {"a", {30, 20}}, {"c", {2, 8}}, {"d", {5}, {"weight", "exp_avg", "momentum"}}}));
  std::atomic<uint64_t> done = 0, total = 0;
  const auto difference = DiffCheckpoints(*Open({5, 1}), *Open({5, 2}), 2, [&](uint64_t d, uint64_t t) {
    done = d;
    total = t;
  });
  ASSERT_TRUE(difference.ok()) << difference.status();
  EXPECT_EQ(difference->common, 1u);
  std::vector<std::string> names;
  for (const TensorMismatch& tensor : difference->mismatches) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("b", "c", "d", "x"));
  EXPECT_THAT(difference->mismatches[0].shape_b, IsEmpty());
  EXPECT_THAT(difference->mismatches[1].shape_b, ElementsAre(2, 8));
  EXPECT_EQ(difference->mismatches[2].shape_a, difference->mismatches[2].shape_b);
  EXPECT_THAT(difference->mismatches[2].planes_b, ElementsAre("weight", "exp_avg", "momentum"));
  EXPECT_THAT(difference->mismatches[3].shape_a, IsEmpty());
  ASSERT_EQ(difference->of_tensor.size(), 1u);
  for (int kind = 0; kind < static_cast<int>(kStateKinds); ++kind) {
    int64_t count = 0, first = -1;
    for (int64_t i = 0; i < 600; ++i) {
      if (TestValue(0, kind, i) == TestValue(1, kind, i)) continue;
      if (count++ == 0) first = i;
    }
    const ValueDifference& found = difference->of_tensor.at(0)[static_cast<size_t>(kind)];
    EXPECT_EQ(found.count, count);
    EXPECT_EQ(found.first, first);
    if (first < 0) continue;
    EXPECT_EQ(found.first_a, TestValue(0, kind, first));
    EXPECT_EQ(found.first_b, TestValue(1, kind, first));
  }
  EXPECT_EQ(total, 2 * kStateKinds * sizeof(float) * 600);
  EXPECT_EQ(done, total);
}

TEST_F(CheckpointAdminTest, StatisticsDoNotDependOnThreads) {
  ASSERT_NO_FATAL_FAILURE(Make({5, 1}));
  const auto reader = Open({5, 1});
  const auto one = ComputeStatistics(*reader, {1, 0}, 1, nullptr),
             three = ComputeStatistics(*reader, {1, 0}, 3, nullptr);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ((*one)[0][0].count, 17);
  EXPECT_EQ((*one)[1][0].count, 300 * 256);
  for (size_t i = 0; i < 2; ++i) {
    for (size_t kind = 0; kind < kStateKinds; ++kind) EXPECT_EQ((*one)[i][kind].sum, (*three)[i][kind].sum);
  }
  double sum = 0;
  for (int64_t i = 0; i < 17; ++i) sum += TestValue(1, 0, i);
  EXPECT_EQ((*one)[0][0].sum, sum);
}

TEST_F(CheckpointAdminTest, DamageIsFoundInTheOneThatIsMeant) {
  ASSERT_NO_FATAL_FAILURE(Make({5, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({9, 1}));
  const Catalog catalog = Scan();
  const std::string damaged = absl::StrCat("step-0000000009-g1/", catalog.valid[0].manifest.shards[0].data.name);
  std::string text = ObjectText(*place_.storage, damaged);
  text[text.size() / 2] ^= 1;
  ReplaceObject(*place_.storage, damaged, text);

  const auto newest = ChooseVerifiable(catalog, place_, {.where = "", .step = {}, .place = {}}, /*all=*/false);
  ASSERT_TRUE(newest.ok()) << newest.status();
  ASSERT_EQ(newest->size(), 1u);
  EXPECT_EQ((*newest)[0].name, "step-0000000009-g1");
  const auto problems = VerifyCheckpoint(*place_.storage, (*newest)[0], 2, nullptr);
  ASSERT_TRUE(problems.ok()) << problems.status();
  EXPECT_FALSE(problems->empty());

  const auto all = ChooseVerifiable(catalog, place_, {.where = "", .step = {}, .place = {}}, /*all=*/true);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_THAT(*VerifyCheckpoint(*place_.storage, (*all)[1], 2, nullptr), IsEmpty());
  EXPECT_THAT(*VerifyCheckpoint(*place_.storage, {.name = "n", .entry = nullptr, .reason = "cut"}, 1, nullptr),
              ElementsAre("n/cut"));
}

TEST_F(CheckpointAdminTest, WhatRetentionDoesNotKeepMayGo) {
  for (const int64_t step : {10, 15, 20, 25}) ASSERT_NO_FATAL_FAILURE(Make({step, 1}));
  const Retention retention{.keep_last = 1, .keep_every_steps = 10, .keep_best = 0};
  const std::vector<Deletion> plan = PlanDeletions(Scan(), retention, /*damaged=*/false);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].name, "step-0000000015-g1");
  EXPECT_GT(plan[0].bytes, 0u);
  EXPECT_EQ(Scan().valid.size(), 4u) << "nothing has been deleted";

  ReplaceObject(*place_.storage, "step-0000000020-g1/manifest.json", "damaged");
  const Catalog catalog = Scan();
  ASSERT_EQ(catalog.rejected.size(), 1u);
  EXPECT_EQ(PlanDeletions(catalog, retention, /*damaged=*/false).size(), 1u);
  const std::vector<Deletion> with_damaged = PlanDeletions(catalog, retention, /*damaged=*/true);
  ASSERT_EQ(with_damaged.size(), 2u);
  EXPECT_GT(with_damaged[1].bytes, sizeof "damaged") << "its shards, too";
}

// Of a later version, say. The defaults would keep two.
TEST_F(CheckpointAdminTest, WhatARunKeepsIsNotGuessed) {
  EXPECT_EQ(ConfiguredRetention(place_, Scan())->keep_last, CheckpointConfig().keep_last) << "there are none";
  ASSERT_NO_FATAL_FAILURE(Make({10, 1}));
  const Catalog catalog = Scan();
  const absl::Status unknown = ConfiguredRetention(place_, catalog).status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("step-0000000010-g1/config"));
  place_.run_config.emplace().checkpoint.keep_last = 7;
  EXPECT_EQ(ConfiguredRetention(place_, catalog)->keep_last, 7);
}

TEST_F(CheckpointAdminTest, WhoeverUsesThemIsNotDisturbed) {
  Storage& storage = *place_.storage;
  EXPECT_TRUE(CheckNotInUse(storage).ok()) << "nobody has claimed it";
  ASSERT_TRUE(storage.Create("fence-old.json", "not a claim").ok());
  EXPECT_TRUE(CheckNotInUse(storage).ok()) << "what is no claim does not count";
  ASSERT_TRUE(Fence::Claim(storage, FenceOwner("a test")).ok());
  EXPECT_TRUE(CheckNotInUse(storage).ok()) << "it is this process";
  ASSERT_TRUE(Fence::Claim(storage, FenceOwner(std::string(200'000, 'x'))).ok());
  EXPECT_TRUE(CheckNotInUse(storage).ok()) << "a claim that a fence can read is not too long here";
  const auto claimed_by = [&](auto change) {
    ProcessId process = ThisProcess();
    change(process);
    EXPECT_TRUE(Fence::Claim(storage, "process of a test", {}, process).ok());
    return CheckNotInUse(storage).ToString();
  };
  EXPECT_EQ(claimed_by([](ProcessId& p) { ++p.started; }), "OK") << "one that had our number before us";
  EXPECT_THAT(claimed_by([](ProcessId& p) { p.pid = getppid(), p.started = 0; }),
              AllOf(HasSubstr("ABORTED: "), HasSubstr("which is running")));
  const auto unknown =
      AllOf(HasSubstr("FAILED_PRECONDITION: "),
            HasSubstr("was used last by process of a test; this machine cannot tell whether it still runs"));
  // A container with the name of its host; the machine before it was started anew; a claim of an earlier version.
  EXPECT_THAT(claimed_by([](ProcessId& p) { p.numbers = "pid:[1]"; }), unknown);
  EXPECT_THAT(claimed_by([](ProcessId& p) { p.boot = "another"; }), unknown);
  EXPECT_THAT(claimed_by([](ProcessId& p) { p = ProcessId{}; }), unknown);
}

}  // namespace
}  // namespace holdfast
