// Hosts whose files at train.init_from are not the same model, with ranks as threads.

#include "framework/train/same_weights.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 16;
constexpr std::chrono::minutes kTimeout{5};  // nobody is so slow

ReadWeightsFn ModelOf(float seed) {
  return [seed](int64_t first, absl::Span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = seed + static_cast<float>(first + static_cast<int64_t>(i)) * 1e-6f;
    return absl::OkStatus();
  };
}

/// What `run` gives on each rank of a world; its communicator goes with it.
template <typename Run>
std::vector<absl::Status> OnRanks(int size, const Run& run) {
  auto communicators = MakeInProcessWorld(size, 1);
  std::vector<absl::Status> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    threads.emplace_back([&, rank] { results[rank] = run(static_cast<int>(rank), std::move(communicators[rank])); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<absl::Status> Check(const std::vector<ReadWeightsFn>& by_rank) {
  const ParameterLayout layout = TransformerLayout(TinyTransformer(kVocab, kSequence));
  return OnRanks(static_cast<int>(by_rank.size()), [&](int rank, std::unique_ptr<Communicator> world) {
    return CheckSameWeights(layout, by_rank[static_cast<size_t>(rank)], *world, kTimeout);
  });
}

TEST(SameWeights, OneModelIsTheSameOnAllRanks) {
  for (const absl::Status& status : Check(std::vector<ReadWeightsFn>(3, ModelOf(1))))
    EXPECT_TRUE(status.ok()) << status;
}

TEST(SameWeights, AnotherModelIsNamedOnAllRanks) {
  for (const absl::Status& status : Check({ModelOf(1), ModelOf(1), ModelOf(2), ModelOf(1)})) {
    EXPECT_EQ(status.message(),
              absl::StrCat("train.init_from holds other weights on ", HostName(), " (rank 2) than on ", HostName(),
                           " (rank 0): every host needs the same model there"));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  }
}

// A model that was tuned in one parameter only, the smallest one too.
TEST(SameWeights, EveryParameterIsLookedAt) {
  const ParameterLayout layout = TransformerLayout(TinyTransformer(kVocab, kSequence));
  for (const ParameterSpec& spec : layout.parameters()) {
    const auto tuned = [&](int64_t first, absl::Span<float> out) {
      RETURN_IF_ERROR(ModelOf(1)(first, out));
      if (first >= spec.offset && first < spec.offset + spec.shape.elements()) out[out.size() / 2] += 1.0f;
      return absl::OkStatus();
    };
    for (const absl::Status& status : Check({ModelOf(1), tuned})) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << spec.name << ": " << status;
    }
  }
}

TEST(SameWeights, ATrainerBeginsWithNoMixtureOfTwoModels) {
  const ModelConfig config = TinyTransformer(kVocab, kSequence);
  const auto device = MakeCpuDevice(1);
  const auto enter = [&](const ReadWeightsFn& of_rank_1) {
    return OnRanks(2, [&](int rank, std::unique_ptr<Communicator> world) {
      const auto model = MakeTransformer(config, {}, *device).value();
      TrainerOptions options;
      options.batch = {.sequence_length = kSequence, .microbatch_size = 2, .microbatches = 2};
      options.parallel.sharding = Sharding::kNoShard;
      options.total_steps = 1;
      options.arena_bytes = PlanTraining(*model, 2, kSequence).arena_bytes;
      options.initial_weights = rank == 0 ? ModelOf(1) : of_rank_1;
      const auto trainer = Trainer::Create(*model, *device, options).value();
      TrainerWorld at;
      at.placement = Placement({"a", "b"}, options.parallel);
      at.rank = rank;
      WorldCommunicators communicators;
      communicators.world = std::move(world);
      return trainer->EnterWorld(at, std::move(communicators)).status();
    });
  };
  for (const absl::Status& status : enter(ModelOf(1))) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : enter(ModelOf(2))) EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

}  // namespace
}  // namespace holdfast
