#include "framework/train/pass_runner.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kElementBytes = 4;
constexpr int64_t kMaxQueued = 64;  // passes; fetching results costs one wait, little against so many

}  // namespace

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(Model& model, Device& device, const Options& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream());
  std::unique_ptr<PassRunner> runner(new PassRunner(model, device, options, std::move(stream)));
  const auto rows = static_cast<size_t>(options.max_rows);
  HOLDFAST_CHECK(model.batch_arrays().size() <= Batch::kMaxArrays);
  RETURN_IF_ERROR(runner->AddLane(options.arena_bytes));
  const auto passes = static_cast<size_t>(std::clamp<int64_t>(options.max_passes, 1, kMaxQueued));
  ASSIGN_OR_RETURN(runner->losses_, Buffer::Allocate(device, passes * rows * sizeof(float), "losses"));
  ASSIGN_OR_RETURN(runner->model_statistics_,
                   Buffer::Allocate(device, passes * runner->StatisticsBytes(), "statistics"));
  return runner;
}

absl::Status PassRunner::AddLane(size_t arena_bytes) {
  ASSIGN_OR_RETURN(Arena arena, Arena::Create(device_, arena_bytes));
  Lane lane{.arena = std::move(arena)};  // is there when it is whole
  for (Inputs& inputs : lane.inputs) {
    for (const BatchArray& array : model_.batch_arrays()) {
      const size_t bytes = static_cast<size_t>(options_.max_rows) * static_cast<size_t>(array.elements) * kElementBytes;
      ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device_, bytes, array.name));
      inputs.arrays.push_back(std::move(buffer));
    }
  }
  lanes_.push_back(std::move(lane));
  return absl::OkStatus();
}

absl::Status PassRunner::SetArenas(size_t bytes, size_t second_bytes) {
  Arena& first = lanes_.front().arena;
  const size_t second_capacity = lanes_.size() > 1 ? lanes_.back().arena.capacity() : 0;
  if (first.capacity() == bytes && second_capacity == second_bytes) return absl::OkStatus();
  RETURN_IF_ERROR(stream_->Synchronize());
  first = Arena::Counting();  // gives the memory back first
  if (lanes_.size() > 1) lanes_.pop_back();
  ASSIGN_OR_RETURN(first, Arena::Create(device_, bytes));
  return second_bytes > 0 ? AddLane(second_bytes) : absl::OkStatus();
}

StatisticsLayout PassRunner::WithLoss(const StatisticsLayout& model) {
  std::vector<StatisticSpec> specs{{.name = kLossStatistic, .combine = Combine::kSum},
                                   {.name = kCountedStatistic, .combine = Combine::kCount}};
  specs.insert(specs.end(), model.specs().begin(), model.specs().end());
  return specs;
}

Batch PassRunner::Upload(const CpuBatch& microbatch, Inputs& to) {
  HOLDFAST_CHECK(microbatch.arrays.size() == to.arrays.size());
  WaitFor(to.read);
  Batch batch{.batch = microbatch.batch, .sequence = microbatch.sequence};
  for (size_t i = 0; i < to.arrays.size(); ++i) {
    std::visit(
        [&](const auto& values) {
          if (values.empty()) return;  // batch.arrays[i] stays null
          const size_t bytes = values.size() * kElementBytes;
          HOLDFAST_CHECK(bytes <= to.arrays[i].bytes());
          device_.CopyFromCpu(to.arrays[i].data(), values.data(), bytes);
          batch.arrays[i] = to.arrays[i].data();
        },
        microbatch.arrays[i]);
  }
  return batch;
}

// A pass has a place for its results from its beginning: another may begin before it has ended.
absl::Status PassRunner::Queue(const CpuBatch& microbatch, UnitStore& store, PartStore* parts, int lane, Pass run) {
  const size_t row_bytes = static_cast<size_t>(options_.max_rows) * sizeof(float);
  const size_t to_begin = lanes_.size() - static_cast<size_t>(lane);  // before this one has ended, with itself
  if ((queued_.size() + to_begin) * row_bytes > losses_.bytes()) RETURN_IF_ERROR(FetchResults());
  Lane& own = lanes_[static_cast<size_t>(lane)];
  Inputs& inputs = own.inputs[own.next_inputs];
  own.next_inputs = (own.next_inputs + 1) % own.inputs.size();
  const Batch batch = Upload(microbatch, inputs);
  const auto rows = static_cast<size_t>(microbatch.batch * microbatch.sequence);
  const PassContext context{.ops = &stream_->ops(),
                            .arena = &own.arena,
                            .store = &store,
                            .random = {.seed = options_.seed, .step = microbatch.step, .microbatch = microbatch.index},
                            .counted = static_cast<float>(microbatch.counted) / static_cast<float>(rows),
                            .parts = parts};
  float* const losses = losses_.as<float>() + static_cast<int64_t>(queued_.size()) * options_.max_rows;
  queued_.push_back({rows, microbatch.counted});
  ArenaScope scope(own.arena);
  absl::Status status = run(batch, context, losses);
  inputs.read = stream_->Record();  // also of a pass that was given up
  return status;
}

absl::Status PassRunner::FetchResults() {
  RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> losses(queued_.size() * static_cast<size_t>(options_.max_rows));
  device_.CopyToCpu(losses.data(), losses_.data(), losses.size() * sizeof(float));
  std::vector<uint64_t> statistics(queued_.size() * static_cast<size_t>(model_.statistics().size()));
  device_.CopyToCpu(statistics.data(), model_statistics_.data(), statistics.size() * sizeof(uint64_t));
  const float* row = losses.data();
  auto of_pass = statistics.begin();
  for (const QueuedPass& pass : queued_) {
    fetched_.push_back(std::bit_cast<uint64_t>(std::accumulate(row, row + pass.rows, 0.0)));
    fetched_.push_back(static_cast<uint64_t>(pass.counted));
    fetched_.insert(fetched_.end(), of_pass, of_pass + model_.statistics().size());
    row += options_.max_rows;
    of_pass += model_.statistics().size();
  }
  queued_.clear();
  return absl::OkStatus();
}

void PassRunner::BeginStep() {
  queued_.clear();
  fetched_.clear();
}

absl::Status PassRunner::ForwardBackward(const CpuBatch& microbatch, float loss_scale, UnitStore& store,
                                         PartStore* parts, int lane) {
  return Queue(microbatch, store, parts, lane, [&](const Batch& batch, PassContext context, float* losses) {
    context.loss_scale = loss_scale;
    if (StatisticsBytes() > 0) {
      context.statistics = model_statistics_.as<std::byte>() + (queued_.size() - 1) * StatisticsBytes();
      stream_->ops().Zero(context.statistics, StatisticsBytes());
    }
    return model_.ForwardBackward(batch, context, losses);
  });
}

absl::StatusOr<std::vector<uint64_t>> PassRunner::TakeStatistics() {
  RETURN_IF_ERROR(FetchResults());
  return std::exchange(fetched_, {});
}

absl::Status PassRunner::Serve(int64_t batch, int64_t sequence, PartStore& parts, bool training, int lane) {
  Arena& arena = lanes_[static_cast<size_t>(lane)].arena;
  ArenaScope scope(arena);
  return model_.Serve({.batch = batch, .sequence = sequence},
                      {.ops = &stream_->ops(), .arena = &arena, .random = {}, .parts = &parts}, training);
}

absl::StatusOr<LossSum> PassRunner::Evaluate(const CpuBatch& microbatch, UnitStore& store, PartStore* parts) {
  const auto evaluate = [&](const Batch& batch, const PassContext& context, float* losses) {
    return model_.Evaluate(batch, context, losses);
  };
  return EvaluateBy(evaluate, microbatch, store, parts);
}

absl::StatusOr<LossSum> PassRunner::EvaluateBy(Pass pass, const CpuBatch& microbatch, UnitStore& store,
                                               PartStore* parts) {
  BeginStep();
  RETURN_IF_ERROR(Queue(microbatch, store, parts, /*lane=*/0, pass));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> statistics, TakeStatistics());
  return LossSum{.sum = std::bit_cast<double>(statistics.front()), .counted = microbatch.counted};
}

}  // namespace holdfast
