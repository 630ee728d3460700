#pragma once
// Runs a model over microbatches on one stream: carries arrays in, losses and statistics out, for training and
// evaluation. Training passes are queued one behind the other: nothing waits for the device until their results are
// asked for.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "framework/nn/model.h"
#include "framework/train/cpu_batch.h"

namespace holdfast {

inline constexpr char kLossStatistic[] = "loss", kCountedStatistic[] = "counted";

struct LossSum {
  double sum = 0;       // over the counted rows, in order
  int64_t counted = 0;  // of them
};

/// Thread-safety: none.
class PassRunner {
 public:
  struct Options {
    int64_t max_rows = 0;    // of one microbatch: B * T
    int64_t max_passes = 1;  // whose results are to wait on the device; beyond a bound they are fetched early
    size_t arena_bytes = 0;  // what the passes to be run need (models/plan.h); or SetArena
    uint64_t seed = 0;       // of dropout
  };

  /// `model` and `device` must outlive the runner.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(Model& model, Device& device, const Options& options);

  /// What passes need from here on; `second_bytes`: those of lane 1, which may be under way with one of lane 0. 0:
  /// there are none.
  absl::Status SetArenas(size_t bytes, size_t second_bytes = 0);

  /// Forgets the results of passes that nobody asked for: their step was given up.
  void BeginStep();
  /// Queues forward and backward; gradients of loss_scale * (sum of losses) go to `store`, and `parts` if there is one.
  absl::Status ForwardBackward(const CpuBatch& microbatch, float loss_scale, UnitStore& store,
                               PartStore* parts = nullptr, int lane = 0);
  /// Takes part in such a pass, or in one of Evaluate's, without a microbatch of its own (Model::Serve).
  absl::Status Serve(int64_t batch, int64_t sequence, PartStore& parts, bool training, int lane = 0);
  /// What a training pass hands over: "loss", the sum over its rows in order, and "counted", how many of them count;
  /// then the model's own.
  const StatisticsLayout& statistics() const { return statistics_; }
  /// Of all passes since BeginStep, in the order in which they were begun, as ItemStatistics::values. Waits for them.
  absl::StatusOr<std::vector<uint64_t>> TakeStatistics();
  absl::StatusOr<LossSum> Evaluate(const CpuBatch& microbatch, UnitStore& store, PartStore* parts = nullptr);
  using Pass = absl::FunctionRef<absl::Status(const Batch& batch, const PassContext& context, float* outputs)>;
  /// The same with a pass that writes losses as Model::Evaluate does.
  absl::StatusOr<LossSum> EvaluateBy(Pass pass, const CpuBatch& microbatch, UnitStore& store,
                                     PartStore* parts = nullptr);

  Stream& stream() { return *stream_; }

 private:
  PassRunner(Model& model, Device& device, const Options& options, std::unique_ptr<Stream> stream)
      : model_(model),
        device_(device),
        options_(options),
        statistics_(WithLoss(model.statistics())),
        stream_(std::move(stream)) {}

  /// A batch on the device; the next pass but one takes the same memory.
  struct Inputs {
    std::vector<Buffer> arrays;
    std::shared_ptr<Event> read;  // by the last pass that used them
  };
  /// What passes have that follow each other.
  struct Lane {
    Arena arena;
    std::array<Inputs, 2> inputs = {};
    size_t next_inputs = 0;
  };
  static StatisticsLayout WithLoss(const StatisticsLayout& model);
  /// Of the model's statistics of one pass.
  size_t StatisticsBytes() const { return static_cast<size_t>(model_.statistics().size()) * sizeof(uint64_t); }
  absl::Status AddLane(size_t arena_bytes);
  Batch Upload(const CpuBatch& microbatch, Inputs& to);
  absl::Status Queue(const CpuBatch& microbatch, UnitStore& store, PartStore* parts, int lane, Pass run);
  absl::Status FetchResults();

  Model& model_;
  Device& device_;
  Options options_;
  StatisticsLayout statistics_;
  std::unique_ptr<Stream> stream_;
  std::deque<Lane> lanes_;   // one or two
  Buffer losses_;            // (passes, max_rows)
  Buffer model_statistics_;  // (passes, model_.statistics().size()) of 8 bytes
  struct QueuedPass {
    size_t rows;      // B * T
    int64_t counted;  // of them
  };
  std::vector<QueuedPass> queued_;  // whose results wait on the device, or will
  std::vector<uint64_t> fetched_;   // (passes before them, statistics_.size())
};

}  // namespace holdfast
