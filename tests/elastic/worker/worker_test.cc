// A worker does what its coordinator says, here the test: its votes are those of a trainer of its own, what it saves is
// what it loads, a world that has changed ends what it is doing, and each failure says what the coordinator has to
// know.

#include "elastic/worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "checkpoint/sharded/fence.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "models/runtime/training_runtime.h"
#include "tests/elastic/worker/publish.h"
#include "tests/elastic/worker/scripted_link.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/comm/wrapped_communicator.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"
#include "tests/framework/train/digest_of.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

auto OfGeneration(uint64_t generation) {
  return [generation](const auto& message) { return message.generation == generation; };
}

class WorkerTest : public TinyRun {
 protected:
  void TearDown() override {
    if (!thread_.joinable()) return;
    link_.Tell(EndMessage{0, "the test is over"});
    thread_.join();
  }

  /// Of all that a run of `config` has, with a shell whose coordinator is the test.
  void Start(const Config& config) {
    config_ = config;
    ASSERT_TRUE(Fence::Claim(*memory_, "the coordinator").ok());
    auto runtime = OpenTraining(config_, {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    Trainer& trainer = *runtime_->trainer;
    SessionShell::Options options;
    options.member = member_;
    options.total_steps = config_.train.steps;
    shell_ = std::make_unique<SessionShell>(options, link_, trainer.progress());
    checkpointer_.emplace(Checkpointer::Dependencies{
        .open_storage = [this](const std::stop_token&) -> absl::StatusOr<std::unique_ptr<Storage>> {
          return std::make_unique<FaultStorage>(storage_);
        },
        .config = &config_.checkpoint,
        .layout = &trainer.state_layout(),
        .progress = &trainer.progress(),
        .send = [this](const SavedMessage& saved) { shell_->Send(saved); }});
    dependencies_.config = &config_;
    dependencies_.trainer = &trainer;
    dependencies_.training = &runtime_->data.training;
    dependencies_.validation = runtime_->data.validation.has_value() ? &*runtime_->data.validation : nullptr;
    dependencies_.shell = shell_.get();
    dependencies_.checkpointer = has_checkpoints_ ? &*checkpointer_ : nullptr;
    if (dependencies_.save_model == nullptr)
      dependencies_.save_model = [](const ReadWeightsFn&, uint64_t) { return absl::OkStatus(); };
    link_.Connect();
    thread_ = std::thread([this] { exit_ = Worker(dependencies_).Run(); });
  }

  Worker::Exit Finish() {
    thread_.join();
    return exit_;
  }

  WorldMessage WorldOf(uint64_t generation, int64_t committed = 0) const {
    WorldMessage message{.world = {.generation = generation, .members = {member_}},
                         .source = {},
                         .committed_step = committed,
                         .microbatches = {config_.batch.microbatches}};
    return message;
  }

  VoteMessage VoteOf(int64_t step, uint64_t generation = 1) {
    return link_.Await<VoteMessage>(
        [&](const VoteMessage& vote) { return vote.generation == generation && vote.step == step; });
  }
  void Commit(int64_t step, bool save = false) {
    VoteOf(step);
    link_.Tell(CommitMessage{.generation = 1, .step = step, .microbatches = {}, .save = save});
  }

  /// What a trainer by itself makes of step `step`, which follows the one it was asked for last.
  struct Alone {
    explicit Alone(const Config& of_run)
        : config(of_run),
          runtime(OpenTraining(of_run, {}).value()),
          order(runtime->data.training.num_samples(), of_run.run.seed, of_run.data.shuffle) {
      EXPECT_TRUE(runtime->trainer->EnterWorld({}, {}).ok());
    }
    StepResult Prepare(int64_t step) {
      const auto source = [&](int64_t index) {
        const BatchShape shape{config.batch.microbatches, config.batch.microbatch_size};
        return ReadMicrobatch(runtime->data.training, order, shape, step, index);
      };
      return runtime->trainer->Prepare({step, {config.batch.microbatches}}, source, {}).value();
    }
    const Config& config;
    std::unique_ptr<TrainingRuntime> runtime;
    SampleOrder order;
  };
  static void ExpectVote(const VoteMessage& vote, const StepResult& result) {
    EXPECT_EQ(vote.loss_bits, std::bit_cast<uint32_t>(result.loss));
    EXPECT_EQ(vote.grad_norm_bits, std::bit_cast<uint32_t>(result.grad_norm));
    EXPECT_EQ(vote.statistics_digest, result.statistics.Digest());
    EXPECT_EQ(vote.lr, result.lr);
    EXPECT_EQ(vote.microbatches, result.microbatches);
  }

  const Member member_{.id = {"local/0", 1}, .node = "local", .host = "here"};
  TestDirectory scratch_;
  const std::unique_ptr<Storage> memory_ = MakeMemoryStorage(scratch_.path());
  FaultStorage storage_{*memory_};
  ScriptedLink link_;
  bool has_checkpoints_ = true;
  Config config_;
  std::unique_ptr<TrainingRuntime> runtime_;
  WorkerDependencies dependencies_;
  std::unique_ptr<SessionShell> shell_;
  std::optional<Checkpointer> checkpointer_;
  std::thread thread_;
  Worker::Exit exit_;
};

TEST_F(WorkerTest, VotesAreThoseOfATrainerAlone) {
  Start(ConfigOf({"log.digest_every_steps=2", "train.steps=4"}));
  link_.Tell(WorldOf(1));
  link_.Await<RecoveredMessage>(OfGeneration(1));
  Alone alone(config_);
  for (int64_t step = 1; step <= 4; ++step) {
    const VoteMessage vote = VoteOf(step);
    const StepResult result = alone.Prepare(step);
    ExpectVote(vote, result);
    std::vector<ChunkDigest> digests;
    if (step % 2 == 0) {
      for (const auto& [chunk, digest] : alone.runtime->trainer->DigestsAfter(result))
        digests.push_back({chunk, digest});
      EXPECT_FALSE(digests.empty());
    }
    EXPECT_EQ(vote.digests, digests) << "step " << step;
    alone.runtime->trainer->Commit(result);
    link_.Tell(CommitMessage{.generation = 1, .step = step, .microbatches = {}});
  }
}

TEST_F(WorkerTest, WhereARunMayEndEarlyItsValidatedStepsHaveDigests) {
  Start(ConfigOf({"data.validation=[" + (root_ / "train.bin") + "]", "train.validation_microbatches=1",
                  "log.digest_every_steps=0", "train.steps=9", "train.validate_every_steps=2",
                  "train.early_stop_patience=1", "checkpoint.keep_best=1"}));
  link_.Tell(WorldOf(1));
  link_.Await<RecoveredMessage>(OfGeneration(1));
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(VoteOf(step).digests.empty(), step % 2 != 0) << "step " << step;
    link_.Tell(CommitMessage{.generation = 1, .step = step, .microbatches = {}});
  }
}

TEST_F(WorkerTest, AfterTheLastStepTheModelIsSavedAndTheRunEnds) {
  uint64_t saved = 0, saved_in = 0;
  dependencies_.save_model = [&](const ReadWeightsFn&, uint64_t generation) {
    saved = DigestOf(*runtime_->trainer);
    saved_in = generation;
    return absl::OkStatus();
  };
  Start(ConfigOf({"train.steps=2"}));
  link_.Tell(WorldOf(1));
  Commit(1);
  Commit(2);
  link_.Await<FinishedMessage>(OfGeneration(1));
  link_.Tell(EndMessage{0, "2 steps done"});
  const Worker::Exit exit = Finish();
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(exit.reason, "2 steps done");
  EXPECT_FALSE(exit.refused);
  Alone alone(config_);
  for (int64_t step = 1; step <= 2; ++step) alone.runtime->trainer->Commit(alone.Prepare(step));
  EXPECT_EQ(saved, DigestOf(*alone.runtime->trainer));
  EXPECT_EQ(saved_in, 1u);
}

TEST_F(WorkerTest, AStorageThatDoesNotAnswerWhenTheModelIsSavedIsWaitedForAsRoomIs) {
  dependencies_.save_model = [](const ReadWeightsFn&, uint64_t) { return absl::UnavailableError("Stale file handle"); };
  Start(ConfigOf({"train.steps=1"}));
  link_.Tell(WorldOf(1));
  Commit(1);
  const auto failure = link_.Await<FailureMessage>();
  EXPECT_TRUE(failure.no_room);
  EXPECT_THAT(failure.cause, HasSubstr("Stale file handle"));
  link_.Tell(EndMessage{1, "given up"});
  Finish();
}

TEST_F(WorkerTest, ValidatesBetweenSteps) {
  Start(ConfigOf({"data.validation=[" + (root_ / "train.bin") + "]", "train.validate_every_steps=1",
                  "train.validation_microbatches=3"}));
  link_.Tell(WorldOf(1));
  Commit(1);
  const auto validation = link_.Await<ValidationMessage>();
  EXPECT_EQ(validation.step, 1);
  Alone alone(config_);
  alone.runtime->trainer->Commit(alone.Prepare(1));
  const auto source = [&](int64_t index) {
    return ReadValidationMicrobatch(*alone.runtime->data.validation, config_.batch.microbatch_size, index);
  };
  EXPECT_EQ(validation.loss, *alone.runtime->trainer->Evaluate(3, source, {}));
}

TEST_F(WorkerTest, WhatACommitSavesIsWhatAnotherWorldLoads) {
  Start(ConfigOf());
  link_.Tell(WorldOf(1));
  Commit(1);
  Commit(2, /*save=*/true);
  const auto saved = link_.Await<SavedMessage>();
  ASSERT_EQ(saved.cause, "");
  EXPECT_EQ(saved.step, 2);
  const VoteMessage next = VoteOf(3);

  WorldMessage again = WorldOf(2, 2);
  again.checkpoint = Publish(storage_, saved, runtime_->trainer->state_layout());
  link_.Tell(again);
  const VoteMessage loaded = VoteOf(3, 2);
  EXPECT_EQ(loaded.loss_bits, next.loss_bits);
  EXPECT_EQ(loaded.grad_norm_bits, next.grad_norm_bits);
}

TEST_F(WorkerTest, ACheckpointThatIsNotThereIsBadAndOneThatCannotBeReadIsNot) {
  Start(ConfigOf());
  WorldMessage world = WorldOf(1, 5);
  world.checkpoint = "step-0000000005-g3";
  link_.Tell(world);
  const auto missing = link_.Await<FailureMessage>(OfGeneration(1));
  EXPECT_TRUE(missing.bad_checkpoint) << missing.cause;
  EXPECT_FALSE(missing.fatal);
  EXPECT_EQ(missing.phase, Phase::kTransfer);

  storage_.Inject({.operation = StorageOperation::kSize, .fault = StorageFault::kUnavailable});
  storage_.Inject({.operation = StorageOperation::kReadAt, .fault = StorageFault::kUnavailable});
  storage_.Inject({.operation = StorageOperation::kList, .fault = StorageFault::kUnavailable});
  world.world.generation = 2;
  link_.Tell(world);
  const auto unreachable = link_.Await<FailureMessage>(OfGeneration(2));
  EXPECT_FALSE(unreachable.bad_checkpoint) << unreachable.cause;
  EXPECT_FALSE(unreachable.fatal);
}

TEST_F(WorkerTest, AWorkerWithoutCheckpointsCannotLoadOne) {
  has_checkpoints_ = false;
  Start(ConfigOf());
  WorldMessage world = WorldOf(1, 5);
  world.checkpoint = "step-0000000005-g3";
  link_.Tell(world);
  const auto failure = link_.Await<FailureMessage>(OfGeneration(1));
  EXPECT_TRUE(failure.fatal);
  EXPECT_FALSE(failure.bad_checkpoint);
}

TEST_F(WorkerTest, ALossThatIsNotFiniteIsFatal) {
  Start(ConfigOf({"optimizer.lr=1000", "optimizer.weight_decay=1000"}));  // weights grow a millionfold in each step
  link_.Tell(WorldOf(1));
  const FailureMessage* failure = nullptr;
  WorkerMessage answer;
  for (int64_t step = 1; failure == nullptr; ++step) {
    answer = link_.AwaitAny([step](const WorkerMessage& message) {
      const auto* vote = std::get_if<VoteMessage>(&message);
      return (vote != nullptr && vote->step == step) || std::holds_alternative<FailureMessage>(message);
    });
    failure = std::get_if<FailureMessage>(&answer);
    if (failure == nullptr) link_.Tell(CommitMessage{.generation = 1, .step = step, .microbatches = {}});
    ASSERT_LT(step, config_.train.steps) << "no step diverged";
  }
  EXPECT_TRUE(failure->fatal);
  EXPECT_THAT(failure->cause, HasSubstr("diverged"));
}

TEST_F(WorkerTest, DataThatCannotBeReadIsAFailureOfThisHostAlone) {
  Start(ConfigOf({"data.loader_threads=1"}));
  std::filesystem::resize_file(root_ / "train.bin", 1100);
  link_.Tell(WorldOf(1));
  const auto failure = link_.Await<FailureMessage>(OfGeneration(1));
  EXPECT_FALSE(failure.fatal);
  EXPECT_FALSE(failure.secondhand);
  EXPECT_TRUE(failure.bad_data) << "of a file that became shorter";
  EXPECT_TRUE(failure.suspects.empty());
  EXPECT_THAT(failure.cause, HasSubstr("train.bin"));
}

// What is used up or forbidden here may be there on another host, or later.
TEST_F(WorkerTest, WhatOneHostLacksIsNoReasonToEndTheRun) {
  const std::vector<int> errors{EMFILE, ENFILE, ENOMEM, EACCES, EPERM, ENOSPC, EIO};
  size_t worlds = 0;
  dependencies_.connect = [&](const World&, int, const auto&, std::stop_token,
                              Deadline) -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
    return ErrnoToStatus(errors[worlds++], "cannot listen");
  };
  Start(ConfigOf());
  for (uint64_t generation = 1; generation <= errors.size(); ++generation) {
    WorldMessage two = WorldOf(generation);
    two.world.members = {member_, Member{.id = {"local/1", 1}, .node = "local", .host = "here"}};
    two.microbatches = {1, 1};
    link_.Tell(two);
    const auto failure = link_.Await<FailureMessage>(OfGeneration(generation));
    EXPECT_THAT(failure.cause, HasSubstr("cannot listen: "));
    EXPECT_FALSE(failure.fatal) << failure.cause;
    EXPECT_FALSE(failure.bad_checkpoint) << failure.cause;
    EXPECT_FALSE(failure.secondhand) << failure.cause;
    EXPECT_FALSE(failure.out_of_memory) << failure.cause;
    EXPECT_FALSE(failure.bad_data) << failure.cause;
    const int error = errors[generation - 1];
    EXPECT_EQ(failure.no_room, error == EMFILE || error == ENOMEM || error == ENOSPC) << failure.cause;
    EXPECT_TRUE(failure.suspects.empty()) << failure.cause;
    EXPECT_EQ(failure.phase, Phase::kRendezvous);
  }
}

TEST_F(WorkerTest, TooLittleMemoryIsCalledThat) {
  dependencies_.connect = [](const World&, int, const auto&, std::stop_token,
                             Deadline) -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
    return OutOfMemoryError("out of GPU memory");
  };
  Start(ConfigOf());
  WorldMessage two = WorldOf(1);
  two.world.members = {member_, Member{.id = {"local/1", 1}, .node = "local", .host = "here"}};
  two.microbatches = {1, 1};
  link_.Tell(two);
  const auto failure = link_.Await<FailureMessage>(OfGeneration(1));
  EXPECT_TRUE(failure.out_of_memory);
  EXPECT_FALSE(failure.no_room);
}

TEST_F(WorkerTest, AFailedValidationIsCalledThat) {
  WriteTokens("validation.bin", 97);
  Start(ConfigOf({"data.validation=[" + (root_ / "validation.bin") + "]", "train.validate_every_steps=1"}));
  std::filesystem::resize_file(root_ / "validation.bin", 1100);
  link_.Tell(WorldOf(1));
  Commit(1);
  const auto failure = link_.Await<FailureMessage>(OfGeneration(1));
  EXPECT_EQ(failure.phase, Phase::kValidation);
  EXPECT_EQ(failure.step, 2);
  EXPECT_FALSE(failure.fatal);
  EXPECT_TRUE(failure.bad_data);
  EXPECT_THAT(failure.cause, HasSubstr("validation.bin"));
}

TEST_F(WorkerTest, AWorldThatHasChangedEndsWhatIsUnderWayWithoutAWord) {
  // Connects to a second member that never comes, until it is told to stop.
  std::atomic<int> connecting{0};
  dependencies_.connect = [&](const World&, int, const auto&, std::stop_token stop,
                              Deadline) -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
    ++connecting;
    connecting.notify_all();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
    return absl::AbortedError("the world has changed");
  };
  Start(ConfigOf());
  WorldMessage two = WorldOf(1);
  two.world.members = {member_, Member{.id = {"local/1", 1}, .node = "local", .host = "here"}};
  two.microbatches = {1, 1};
  link_.Tell(two);
  connecting.wait(0);
  link_.Tell(WorldOf(2));
  link_.Await<RecoveredMessage>(OfGeneration(2));
  VoteOf(1, 2);
  EXPECT_EQ(link_.Count<FailureMessage>(), 0);
}

/// Is one of `alive`.
class CountedCommunicator final : public WrappedCommunicator {
 public:
  CountedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<std::atomic<int>> alive)
      : WrappedCommunicator(std::move(inner)), alive_(std::move(alive)) {
    ++*alive_;
  }
  ~CountedCommunicator() override { --*alive_; }

 private:
  const std::shared_ptr<std::atomic<int>> alive_;
};

// NCCL's take memory of the GPU, and to free them beside those of the next world may wait for that one's calls.
TEST_F(WorkerTest, AWorldIsLeftBeforeTheNextOneIsConnected) {
  const auto alive = std::make_shared<std::atomic<int>>(0);
  std::vector<int> of_worlds_before;
  std::vector<std::unique_ptr<Communicator>> others;  // of a second member, which does nothing
  dependencies_.connect = [&, alive](const World& world, int, const std::vector<std::vector<int>>& groups,
                                     std::stop_token, Deadline) {
    of_worlds_before.push_back(*alive);
    std::vector<std::unique_ptr<Communicator>> mine;
    for (const std::vector<int>& group : groups) {
      auto members = MakeInProcessWorld(static_cast<int>(group.size()), world.generation);
      mine.push_back(std::make_unique<CountedCommunicator>(std::move(members[0]), alive));
      others.push_back(std::move(members[1]));
    }
    return absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(std::move(mine));
  };
  Start(ConfigOf());
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    WorldMessage two = WorldOf(generation);
    two.world.members = {member_, Member{.id = {"local/1", 1}, .node = "local", .host = "here"}};
    two.microbatches = {1, 1};
    link_.Tell(two);
    link_.Await<RecoveredMessage>(OfGeneration(generation));
    EXPECT_GT(*alive, 0);
  }
  EXPECT_THAT(of_worlds_before, ElementsAre(0, 0, 0));
}

TEST_F(WorkerTest, WhoIsRefusedEndsAndSaysSo) {
  Start(ConfigOf());
  link_.Tell(RefusedMessage{.reason = "another config"});
  const Worker::Exit exit = Finish();
  EXPECT_EQ(exit.code, 1);
  EXPECT_EQ(exit.reason, "another config");
  EXPECT_TRUE(exit.refused);
}

}  // namespace
}  // namespace holdfast
