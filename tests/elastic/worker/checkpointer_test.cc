// What is saved while training goes on is the state of its step, and what is loaded is what was saved. What cannot be
// written is reported and holds up neither training nor the next save; each way not to load has its own error code.

#include "elastic/worker/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/sharded/fence.h"
#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "models/runtime/training_runtime.h"
#include "tests/elastic/worker/publish.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"
#include "tests/framework/train/digest_of.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

class CheckpointerTest : public TinyRun {
 protected:
  void SetUp() override {
    TinyRun::SetUp();
    config_ = ConfigOf();
    runtime_ = OpenTraining(config_, {}).value();
    ASSERT_TRUE(trainer().EnterWorld({}, {}).ok());
    Step();
    ASSERT_TRUE(Fence::Claim(*memory_, "the coordinator").ok());
  }

  Trainer& trainer() { return *runtime_->trainer; }

  void Step() {
    ++step_;
    const SampleOrder order(runtime_->data.training.num_samples(), 1, true);
    const BatchShape shape{config_.batch.microbatches, config_.batch.microbatch_size};
    const auto source = [&](int64_t index) {
      return ReadMicrobatch(runtime_->data.training, order, shape, step_, index);
    };
    const auto result = trainer().Prepare({step_, {config_.batch.microbatches}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    trainer().Commit(*result);
  }

  Checkpointer::Dependencies Dependencies() {
    return {.open_storage = [this](const std::stop_token&) -> absl::StatusOr<std::unique_ptr<Storage>> {
              if (before_opening_ != nullptr) RETURN_IF_ERROR(before_opening_());
              return std::make_unique<FaultStorage>(storage_);
            },
            .config = &config_.checkpoint,
            .layout = &trainer().state_layout(),
            .progress = &trainer().progress(),
            .send = [this](const SavedMessage& saved) { saved_.push_back(saved); }};
  }

  void Begin(Checkpointer& checkpointer, uint64_t generation = 1) {
    checkpointer.Begin({step_, generation}, 0, 1, trainer().StartSnapshot(checkpointer.staging_bytes()));
  }

  /// Saves the state as it is now.
  SavedMessage Save(Checkpointer& checkpointer, uint64_t generation = 1) {
    Begin(checkpointer, generation);
    checkpointer.Finish({});
    return saved_.back();
  }

  /// Nothing is written before `stepped`.
  void WriteAfter(std::promise<void>& stepped) {
    before_opening_ = [&stepped] {
      stepped.get_future().wait();
      return absl::OkStatus();
    };
  }

  /// Into the state.
  void Load(Checkpointer& checkpointer, const SavedMessage& saved) {
    const std::string name = Publish(storage_, saved, trainer().state_layout());
    TrainerWorld world;
    world.load = [&](ShardedState& state, const std::stop_token& stop) { return checkpointer.Load(name, state, stop); };
    ASSERT_TRUE(trainer().EnterWorld(world, {}).ok());
  }

  Config config_;
  TestDirectory scratch_;
  const std::unique_ptr<Storage> memory_ = MakeMemoryStorage(scratch_.path());
  FaultStorage storage_{*memory_};
  std::function<absl::Status()> before_opening_;
  std::unique_ptr<TrainingRuntime> runtime_;
  std::vector<SavedMessage> saved_;  // by the thread inside; read after Finish
  int64_t step_ = 0;                 // committed
};

TEST_F(CheckpointerTest, WhatIsSavedBesideStepsIsWhatIsLoaded) {
  const uint64_t digest = DigestOf(trainer());
  std::promise<void> stepped;
  WriteAfter(stepped);
  Checkpointer checkpointer(Dependencies());
  Begin(checkpointer);
  Step();
  EXPECT_NE(DigestOf(trainer()), digest);
  stepped.set_value();
  checkpointer.Finish({});
  const SavedMessage saved = saved_.at(0);
  ASSERT_EQ(saved.cause, "");
  EXPECT_EQ(saved.step, 1);
  EXPECT_GT(saved.stall_seconds, 0) << "the step copied what was not written yet";
  EXPECT_EQ(checkpointer.TakeStallSeconds(), saved.stall_seconds);
  EXPECT_EQ(checkpointer.TakeStallSeconds(), 0);

  before_opening_ = nullptr;
  const uint64_t before = trainer().progress().count;
  ASSERT_NO_FATAL_FAILURE(Load(checkpointer, saved));
  EXPECT_EQ(DigestOf(trainer()), digest);
  EXPECT_GE(trainer().progress().count, before + trainer().state_layout().parameters().chunks().size());
  EXPECT_EQ(trainer().progress().bytes_to_load, 0) << "nothing is being loaded any more";
}

TEST_F(CheckpointerTest, ASecondOneBegunBeforeTheFirstIsWrittenHasItsOwnBits) {
  const uint64_t first = DigestOf(trainer());
  std::promise<void> stepped;
  WriteAfter(stepped);
  Checkpointer checkpointer(Dependencies());
  Begin(checkpointer);
  Step();
  const uint64_t second = DigestOf(trainer());
  Begin(checkpointer, 2);
  Step();
  stepped.set_value();
  checkpointer.Finish({});
  before_opening_ = nullptr;
  for (const auto& [saved, digest] : {std::pair(saved_.at(0), first), std::pair(saved_.at(1), second)}) {
    ASSERT_EQ(saved.cause, "");
    ASSERT_NO_FATAL_FAILURE(Load(checkpointer, saved));
    EXPECT_EQ(DigestOf(trainer()), digest) << "step " << saved.step;
  }
}

TEST_F(CheckpointerTest, WhatCannotBeWrittenIsReportedAndTheNextOneIsTried) {
  Checkpointer checkpointer(Dependencies());
  for (const auto& [fault, cause] : {std::pair(StorageFault::kNoSpace, "No space left"),
                                     std::pair(StorageFault::kNoPermission, "ermission denied")}) {
    storage_.Inject({.operation = StorageOperation::kStage, .fault = fault});
    const SavedMessage failed = Save(checkpointer);
    EXPECT_THAT(failed.cause, HasSubstr(cause));
    EXPECT_TRUE(failed.no_room);
    Step();
    storage_.ClearFaults();
  }
  EXPECT_EQ(Save(checkpointer, 3).cause, "");
}

TEST_F(CheckpointerTest, AStorageThatDoesNotOpenIsOpenedForTheNextOne) {
  int opened = 0;
  const std::vector<absl::Status> answers{absl::UnavailableError("no answer"), absl::NotFoundError("it is not claimed"),
                                          absl::OkStatus()};
  before_opening_ = [&] { return answers.at(static_cast<size_t>(opened++)); };
  Checkpointer checkpointer(Dependencies());
  for (const uint64_t generation : {1, 2}) {
    const SavedMessage failed = Save(checkpointer, generation);
    EXPECT_EQ(failed.cause, answers[generation - 1].message());
    EXPECT_EQ(failed.no_room, generation == 1) << "a host that has another place may have it for ever";
  }
  EXPECT_EQ(Save(checkpointer, 3).cause, "");
  EXPECT_EQ(Save(checkpointer, 4).cause, "");
  EXPECT_EQ(opened, 3) << "one that is open stays open";
}

// As when its disk is unmounted while the run works: the directory below has neither claim nor room for it.
TEST_F(CheckpointerTest, NothingIsWrittenWhereTheClaimIsGone) {
  Checkpointer checkpointer(Dependencies());
  EXPECT_EQ(Save(checkpointer).cause, "");
  ASSERT_TRUE(memory_->Delete("fence-0000000001.json").ok());
  const size_t objects = memory_->List("")->size();
  const SavedMessage failed = Save(checkpointer, 2);
  EXPECT_THAT(failed.cause, HasSubstr("is not the place that the run's coordinator has claimed"));
  EXPECT_FALSE(failed.no_room);
  EXPECT_EQ(memory_->List("")->size(), objects);
  ASSERT_TRUE(Fence::Claim(*memory_, "the coordinator").ok());
  EXPECT_EQ(Save(checkpointer, 3).cause, "");
}

TEST_F(CheckpointerTest, NoMemoryForOneEndsThatOneOnly) {
  bool is_out = true;
  before_opening_ = [&]() -> absl::Status {
    if (std::exchange(is_out, false)) throw std::bad_alloc();
    return absl::OkStatus();
  };
  Checkpointer checkpointer(Dependencies());
  const SavedMessage failed = Save(checkpointer);
  EXPECT_EQ(failed.cause, "std::bad_alloc");
  EXPECT_FALSE(failed.no_room) << "waiting does not help";
  EXPECT_EQ(Save(checkpointer, 2).cause, "");
}

TEST_F(CheckpointerTest, ASnapshotWhoseStateIsForgottenIsNoCheckpoint) {
  std::promise<void> forgotten;
  before_opening_ = [&] {
    forgotten.get_future().wait();
    return absl::OkStatus();
  };
  Checkpointer checkpointer(Dependencies());
  Begin(checkpointer);
  trainer().Forget();
  forgotten.set_value();
  checkpointer.Finish({});
  EXPECT_NE(saved_.at(0).cause, "");
  EXPECT_TRUE(storage_.List("step-")->empty());
}

TEST_F(CheckpointerTest, FinishReturnsWhenItIsStopped) {
  std::promise<void> opening, done;
  before_opening_ = [&] {
    opening.set_value();
    done.get_future().wait();
    return absl::OkStatus();
  };
  Checkpointer checkpointer(Dependencies());
  Begin(checkpointer);
  opening.get_future().wait();
  std::stop_source stop;
  stop.request_stop();
  checkpointer.Finish(stop.get_token());
  EXPECT_TRUE(saved_.empty());
  done.set_value();
  checkpointer.Finish({});
  EXPECT_EQ(saved_.size(), 1u);
}

TEST_F(CheckpointerTest, WhoEndsGivesUpAllThatWasBegun) {
  std::promise<void> ending;
  WriteAfter(ending);
  auto checkpointer = std::make_unique<Checkpointer>(Dependencies());
  std::vector<std::shared_ptr<Snapshot>> snapshots;
  for (const uint64_t generation : {1, 2}) {
    snapshots.push_back(trainer().StartSnapshot(checkpointer->staging_bytes()));
    checkpointer->Begin({step_, generation}, 0, 1, snapshots.back());
    Step();
  }
  const auto ended = std::async(std::launch::async, [&] { checkpointer.reset(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (const auto& snapshot : snapshots) {
    while (!snapshot->abandoned() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(snapshot->abandoned());
  }
  ending.set_value();
  ended.wait();
  ASSERT_EQ(saved_.size(), 2u);
  for (const SavedMessage& saved : saved_) EXPECT_THAT(saved.cause, HasSubstr("its state was discarded"));
}

// The wrong region, no certificate: the run may go on with others.
TEST_F(CheckpointerTest, AStorageThatThisHostAloneCannotOpenIsNoReasonToEndTheRun) {
  Checkpointer writer(Dependencies());
  const std::string name = Publish(storage_, Save(writer), trainer().state_layout());
  before_opening_ = [] { return absl::FailedPreconditionError("no certificate"); };
  Checkpointer checkpointer(Dependencies());
  const absl::Status loaded = checkpointer.Load(name, trainer().state(), {});
  EXPECT_TRUE(absl::IsUnavailable(loaded)) << loaded;
  EXPECT_EQ(loaded.message(), "no certificate");
}

TEST_F(CheckpointerTest, WhyOneIsNotLoaded) {
  Checkpointer checkpointer(Dependencies());
  const std::string name = Publish(storage_, Save(checkpointer), trainer().state_layout());
  ShardedState& state = trainer().state();
  EXPECT_TRUE(absl::IsInvalidArgument(checkpointer.Load("latest", state, {})));
  EXPECT_TRUE(absl::IsNotFound(checkpointer.Load("step-0000000009-g1", state, {})));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(checkpointer.Load(name, state, stop.get_token())));
  storage_.Inject({.operation = StorageOperation::kReadAt, .fault = StorageFault::kBitFlip, .name = ".h5", .bit = 77});
  EXPECT_TRUE(absl::IsDataLoss(checkpointer.Load(name, state, {})));
  storage_.ClearFaults();
  storage_.Inject({.operation = StorageOperation::kReadAt, .fault = StorageFault::kUnavailable, .name = ".h5"});
  EXPECT_TRUE(absl::IsUnavailable(checkpointer.Load(name, state, {})));
  storage_.ClearFaults();
  EXPECT_TRUE(checkpointer.Load(name, state, {}).ok());

  const auto wider = OpenTraining(ConfigOf({"model.hidden_size=64"}), {});
  ASSERT_TRUE(wider.ok()) << wider.status();
  ASSERT_TRUE((*wider)->trainer->EnterWorld({}, {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(checkpointer.Load(name, (*wider)->trainer->state(), {})));
}

TEST_F(CheckpointerTest, AutoCompressesWhereTheSpaceLimitAsksForIt) {
  {
    Checkpointer checkpointer(Dependencies());
    const SavedMessage plain = Save(checkpointer);
    EXPECT_EQ(plain.stored_bytes, plain.raw_bytes) << "nothing is known of the disk yet";
  }
  config_.checkpoint.max_gib = 1e-6;
  Checkpointer checkpointer(Dependencies());
  const SavedMessage packed = Save(checkpointer, 2);
  EXPECT_LT(packed.stored_bytes, packed.raw_bytes);
}

// The world that it loads for is gone. What is being written for another is not given up with it.
TEST_F(CheckpointerTest, AStopEndsALoadThatWaitsForAServer) {
  std::stop_source of_load;
  std::optional<std::stop_token> given;
  Checkpointer::Dependencies dependencies = Dependencies();
  dependencies.open_storage = [&, open = dependencies.open_storage](const std::stop_token& stop) {
    given = stop;
    return open(stop);
  };
  Checkpointer checkpointer(std::move(dependencies));
  const std::string name = Publish(storage_, Save(checkpointer), trainer().state_layout());
  ASSERT_TRUE(given.has_value());
  const std::stop_token of_writing = *given;
  EXPECT_TRUE(checkpointer.Load(name, trainer().state(), of_load.get_token()).ok());
  of_load.request_stop();
  EXPECT_TRUE(given->stop_requested());
  EXPECT_FALSE(of_writing.stop_requested());
}

// Of a worker that leaves: nobody waits for what it had begun, least of all for a server that does not answer.
TEST_F(CheckpointerTest, ItsEndEndsWhatWaitsForAServer) {
  Checkpointer::Dependencies dependencies = Dependencies();
  dependencies.open_storage = [](const std::stop_token& stop) -> absl::StatusOr<std::unique_ptr<Storage>> {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, std::chrono::minutes(2), [] { return false; });
    return absl::CancelledError(stop.stop_requested() ? "stopped" : "nobody has said that it is over");
  };
  {
    Checkpointer checkpointer(std::move(dependencies));
    Begin(checkpointer);
  }
  ASSERT_EQ(saved_.size(), 1u);
  EXPECT_EQ(saved_[0].cause, "stopped");
}

}  // namespace
}  // namespace holdfast
