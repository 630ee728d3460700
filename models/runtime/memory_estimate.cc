#include "models/runtime/memory_estimate.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/metrics/progress.h"
#include "framework/nn/trained_part.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/gather_plan.h"
#include "framework/parallel/sharded_store.h"
#include "framework/parallel/whole_updates.h"
#include "framework/train/frozen_weights.h"

namespace holdfast {
namespace {

/// Memory that can be used without swapping, from /proc/meminfo; 0 if unknown.
double AvailableHostBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  double kibibytes = 0;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

/// Unsharded gradients that exist at once: of the first and the last unit, and of others one that a pass has open and
/// two that are being reduced. `again`: the first one's of the pass before, too, which an embedding that is tied to the
/// head does not wait for.
double OpenGradients(const ParameterLayout& layout, bool again) {
  double largest = 0;
  const auto& units = layout.units();
  for (size_t u = 1; u + 1 < units.size(); ++u) largest = std::max(largest, static_cast<double>(units[u].elements));
  const auto first = static_cast<double>(units.front().elements), last = static_cast<double>(units.back().elements);
  return first * (again ? 2 : 1) + last + 3 * largest;
}

}  // namespace

namespace {

Placement PlacementOf(const Config& config) {
  const auto workers = static_cast<size_t>(config.elastic.workers);
  return Placement(std::vector<std::string>(workers, "here"), config.parallel);
}

}  // namespace

bool ComputesInParts(const Config& config) {
  return MovesTokens(config) && PlacementOf(config).num_groups() < config.elastic.workers;
}

MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, const PassPlans& plans) {
  if (!ComputesInParts(config)) return EstimateMemory(config, model, plans.arena_bytes, plans.training.schedule);
  return EstimateMemory(config, model, plans.arena_bytes_in_parts, plans.training_in_parts.schedule);
}

MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, size_t activation_bytes,
                              const UnitSchedule& schedule_of_model) {
  const TrainedPart trained(model);
  const ParameterLayout& layout = trained.layout();
  const UnitSchedule schedule = trained.Of(schedule_of_model);
  const auto workers = static_cast<size_t>(config.elastic.workers);
  const Placement placement = PlacementOf(config);
  const bool bf16 = config.train.compute_dtype == ComputeDType::kBF16;
  const DType compute_dtype = bf16 ? DType::kBF16 : DType::kF32;
  const ShardMap map(layout, compute_dtype, placement);
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config.optimizer);
  const StateLayout state = LayoutOf(*optimizer, layout);
  const auto n = static_cast<double>(layout.elements());
  const double shards = static_cast<double>(workers) / placement.num_groups();
  const double held = n * static_cast<double>(placement.HeldCells(0).size()) / placement.num_cells();
  const bool alone = placement.Group(0).size() == 1;

  double whole = 0;
  std::vector<int64_t> unit_bytes;
  for (int u = 0; u < layout.num_units(); ++u) {
    unit_bytes.push_back(map.ComputeWeightBytes(u));
    whole += static_cast<double>(map.ComputeWeightBytes(u));
  }
  double served = whole;
  if (!alone && config.parallel.sharding == Sharding::kFullShard) {
    served = whole / shards;
    for (const int64_t slot : PlanGathers(schedule, 1, unit_bytes, 1).slot_bytes) served += static_cast<double>(slot);
  }
  const SumOrder order = SumOrder::Of(config.batch);
  const int64_t microbatches = config.batch.microbatches;
  double local = OpenGradients(layout, config.model.tie_embeddings && microbatches > config.elastic.workers);
  if (ShardedStore::Mode(placement) == ReductionMode::kPieces) {
    // What this rank adds up itself; what waits for being sent meanwhile; what a pass has open while there are sums.
    const ReductionPlan plan(EvenMicrobatches(microbatches, static_cast<int>(workers)), ReductionMode::kPieces, order);
    const int sums = plan.num_waves() > 1 ? 2 : order.MaxSums(plan.RangeOf(0, static_cast<int>(workers) - 1));
    local = n * sums + (microbatches > 1 ? OpenGradients(layout, false) : 0);
  }
  const double reduced = workers == 1 ? 0 : n / static_cast<double>(workers) * order.MaxSums({0, microbatches}) + held;
  return {.weights = served + (bf16 ? held * 4 : (held - n / shards) * 4),
          .frozen = static_cast<double>(FrozenWeights::Bytes(model, compute_dtype)),
          .gradients = (local + reduced) * 4,
          .optimizer = held * (static_cast<double>(state.elements()) / n - 1) * 4 +
                       WholeUpdateBytes(layout, *optimizer, static_cast<int>(workers), held / n),
          .activations = static_cast<double>(activation_bytes)};
}

absl::Status CheckHostMemory(const MemoryEstimate& e, int64_t workers_here) {
  const double available = AvailableHostBytes() / static_cast<double>(workers_here);
  if (available == 0 || e.total() <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      workers_here == 1 ? "this run" : "each worker of this run", " needs ", FormatBytes(e.total()),
      " of memory (weights ", FormatBytes(e.weights + e.frozen), ", gradients ", FormatBytes(e.gradients),
      ", optimizer ", FormatBytes(e.optimizer), ", activations ", FormatBytes(e.activations), "), but only ",
      FormatBytes(available), workers_here == 1 ? " are" : " for each are",
      " available; lower batch.microbatch_size, set batch.gradient_sum: chains or train.recompute: block, or use a "
      "smaller model"));
}

}  // namespace holdfast
