// What a user writes for a place of checkpoints, and what of it is made, found or refused.

#include "checkpoint/place/checkpoint_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/sharded/fence.h"
#include "framework/config/load.h"
#include "framework/storage/atomic_file.h"
#include "models/families/families.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointPlaceTest : public testing::Test {
 protected:
  /// A run directory whose config says where its checkpoints are.
  void MakeRun(const std::string& checkpoints) {
    const auto config = ParseConfig("model: {vocab_size: 8}\ndata: {train: [a.bin]}\ntrain: {steps: 1}\n", "test",
                                    {"checkpoint.directory=" + checkpoints}, {.families = FamilyPresets()});
    ASSERT_TRUE(config.ok()) << config.status();
    fs::create_directories(root_ / "run");
    ASSERT_TRUE(WriteFileAtomically(root_ / "run/config.yaml", PrintConfig(*config)).ok());
  }

  TemporaryDirectory root_;
};

TEST_F(CheckpointPlaceTest, ADirectoryMustBeThereUnlessItIsToBeMade) {
  const std::string where = root_ / "new";
  EXPECT_TRUE(absl::IsNotFound(OpenCheckpointPlace(where, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenCheckpointPlace(where, {.access = PlaceAccess::kWrite}).status()));
  EXPECT_FALSE(fs::exists(where));
  EXPECT_TRUE(OpenCheckpointPlace(where, {.access = PlaceAccess::kCreate}).ok());
  EXPECT_TRUE(fs::is_directory(where));
  EXPECT_TRUE(OpenCheckpointPlace(where + "//", {}).ok());
}

TEST_F(CheckpointPlaceTest, AFileIsNoPlace) {
  ASSERT_TRUE(WriteFileAtomically(root_ / "file", "x").ok());
  const auto place = OpenCheckpointPlace(root_ / "file", {});
  EXPECT_TRUE(absl::IsInvalidArgument(place.status())) << place.status();
}

TEST_F(CheckpointPlaceTest, OneCheckpointMayBeNamed) {
  const auto place = OpenCheckpointPlace(root_ / "step-0000001000-g7", {});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->checkpoint, (CheckpointName{.step = 1000, .generation = 7}));
  EXPECT_THAT(place->storage->Describe(), HasSubstr(root_.path()));
  EXPECT_FALSE(OpenCheckpointPlace(root_.path(), {})->checkpoint.has_value());
}

TEST_F(CheckpointPlaceTest, ARunDirectorySaysWhereItsCheckpointsAre) {
  MakeRun(root_ / "elsewhere");
  const auto none = OpenCheckpointPlace(root_ / "run", {});
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("this run has no checkpoints"));
  fs::create_directories(root_ / "elsewhere");
  const auto place = OpenCheckpointPlace(root_ / "run", {});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->run_directory, root_ / "run");
  ASSERT_TRUE(place->run_config.has_value());
  EXPECT_EQ(place->run_config->checkpoint.directory, root_ / "elsewhere");
}

TEST_F(CheckpointPlaceTest, AWorkerTakesOnlyThePlaceThatItsCoordinatorHasClaimed) {
  CheckpointConfig config;
  config.directory = root_ / "shared";
  EXPECT_FALSE(OpenClaimedStorage(config, root_ / "run").ok());
  EXPECT_FALSE(fs::exists(config.directory)) << "a mount that is missing is not replaced by an empty directory";
  const auto storage = OpenCheckpointStorage(config, root_ / "run");
  ASSERT_TRUE(storage.ok()) << storage.status();
  const auto unclaimed = OpenClaimedStorage(config, root_ / "run");
  EXPECT_TRUE(absl::IsNotFound(unclaimed.status())) << unclaimed.status();
  ASSERT_TRUE(Fence::Claim(**storage, "test").ok());
  EXPECT_TRUE(OpenClaimedStorage(config, root_ / "run").ok());
}

TEST_F(CheckpointPlaceTest, ABucketNeedsAName) {
  CheckpointConfig config;
  config.directory = "s3:///prefix";
  EXPECT_TRUE(absl::IsInvalidArgument(OpenCheckpointStorage(config, root_.path()).status()));
}

}  // namespace
}  // namespace holdfast
