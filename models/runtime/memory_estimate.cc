#include "models/runtime/memory_estimate.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/format_bytes.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/gather_plan.h"
#include "framework/parallel/reduction_memory.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/sharded_store.h"
#include "framework/parallel/whole_updates.h"
#include "framework/train/read_only_weights.h"
#include "kernels/cuda/gemm.h"
#include "models/runtime/arithmetic.h"
#include "models/runtime/scratch_ops.h"

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

Placement PlacementOf(const Config& config) {
  const auto workers = static_cast<size_t>(config.elastic.workers);
  return Placement(std::vector<std::string>(workers, "here"), config.parallel);
}

/// What a worker has of the state, in elements, and of compute weights, in bytes.
struct Holding {
  int rank = 0;  // of the one that holds the most
  double held = 0, served = 0, compute_weights = 0;
};

Holding LargestHolding(const ShardMap& map, bool whole_units, bool in_parts) {
  const ParameterLayout& layout = map.layout();
  const int size = map.placement().size();
  std::vector<double> held(static_cast<size_t>(size));
  for (int chunk = 0; chunk < std::ssize(layout.chunks()); ++chunk) {
    for (const int holder : map.Holders(chunk)) {
      held[static_cast<size_t>(holder)] += static_cast<double>(layout.chunks()[static_cast<size_t>(chunk)].elements);
    }
  }
  const auto most = std::max_element(held.begin(), held.end());
  Holding holding{.rank = static_cast<int>(most - held.begin()), .held = *most};
  for (int u = 0; u < layout.num_units(); ++u) {
    const Ranges& served = map.Served(u, holding.rank);
    const bool whole = whole_units && !(in_parts && !layout.units()[static_cast<size_t>(u)].parts.empty());
    holding.served += static_cast<double>(map.CountElements(u, served));
    holding.compute_weights +=
        static_cast<double>(whole ? map.ComputeWeightBytes(u) : map.CountComputeWeightBytes(u, served));
  }
  return holding;
}

/// Of the stream that passes run on: the most that one kernel asks for, or twice the workspace, as CudaStream grows to
/// where a product asks for little more than that.
double KernelBytes(const Config& config) {
  const bool widens = config.model.NumExpertLayers() > 0 && config.train.compute_dtype == ComputeDType::kBF16;
  const auto workspace = static_cast<double>(kernels::kGemmWorkspaceBytes);
  const auto rows = static_cast<double>(config.batch.microbatch_tokens());
  const double router_input = widens ? rows * static_cast<double>(config.model.hidden_size) * 4 : 0;
  const double attention_sums = rows * static_cast<double>(config.model.num_heads) * 2 * 4;
  return std::max({2 * workspace, workspace + router_input, attention_sums});
}

/// What would take less, of what the config does not say already.
std::string MemoryAdvice(const Config& config, int64_t workers_here, const MemoryEstimate& e) {
  std::vector<std::string> advice;
  if (2 * e.kernels > e.total() && config.train.threads != 1) advice.emplace_back("set train.threads to fewer");
  if (workers_here > 1) advice.emplace_back("start fewer workers on this machine");
  if (config.batch.microbatch_size > 1) advice.emplace_back("lower batch.microbatch_size");
  const bool has_tree = config.batch.gradient_sum == GradientSumKind::kTree && config.batch.microbatches > 1;
  if (has_tree) advice.emplace_back("set batch.gradient_sum: chains");
  if (config.train.recompute == RecomputeMode::kNone) advice.emplace_back("set train.recompute: block");
  if (!config.trains_part()) advice.emplace_back("train a part of the model (lora, train.only)");
  if (config.parallel.sharding != Sharding::kNoShard) advice.emplace_back("add workers on other machines");
  return absl::StrCat(absl::StrJoin(advice, ", "), advice.empty() ? "" : ", or ", "use a smaller model");
}

}  // namespace

bool ComputesInParts(const Config& config) {
  return MovesTokens(config) && PlacementOf(config).num_groups() < config.elastic.workers;
}

bool OverlapsMicrobatches(const Config& config) {
  return config.parallel.overlap_microbatches && ComputesInParts(config) &&
         config.batch.microbatches > config.elastic.workers;
}

MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, const PassPlans& plans) {
  if (!ComputesInParts(config)) {
    return EstimateMemory(config, model, plans.arena_bytes, plans.training.schedule, plans.scratch_bytes);
  }
  const size_t second = OverlapsMicrobatches(config) ? plans.training_in_parts.arena_bytes : 0;
  return EstimateMemory(config, model, plans.arena_bytes_in_parts + second, plans.training_in_parts.schedule,
                        plans.scratch_bytes);
}

MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, size_t activation_bytes,
                              const UnitSchedule& schedule_of_model, size_t scratch_bytes) {
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
  const bool in_parts = ComputesInParts(config), alone = placement.Group(0).size() == 1;
  const bool whole_units = alone || config.parallel.sharding != Sharding::kFullShard;
  const bool on_gpu = config.train.device != DeviceKind::kCpu;
  const bool two_at_a_time = OverlapsMicrobatches(config);
  const Holding holding = LargestHolding(map, whole_units, in_parts);
  const auto n = static_cast<double>(layout.elements());

  double slots = 0;
  if (!whole_units) {
    std::vector<int64_t> unit_bytes;
    for (int u = 0; u < layout.num_units(); ++u) unit_bytes.push_back(map.ComputeWeightBytes(u));
    const GatherPlan gathers = PlanGathers(schedule, two_at_a_time ? kMaxLanes : 1, unit_bytes, 1, two_at_a_time);
    for (const int64_t slot : gathers.slot_bytes) slots += static_cast<double>(slot);
  }
  const SumOrder order = SumOrder::Of(config.batch);
  const ReductionPlan plan(EvenMicrobatches(config.batch.microbatches, static_cast<int>(workers)),
                           ShardedStore::Mode(placement), order);
  const ReductionMemory gradients =
      PlanReductionMemory(map, holding.rank, order, plan, schedule, in_parts, two_at_a_time);
  return {.weights = holding.compute_weights + slots + (bf16 ? holding.held : holding.held - holding.served) * 4,
          .frozen = static_cast<double>(ReadOnlyWeights::Bytes(model, ReadOnlyWeights::Frozen, compute_dtype)),
          .gradients = static_cast<double>(gradients.total()) * 4,
          .optimizer = holding.held * (static_cast<double>(state.elements()) / n - 1) * 4 +
                       WholeUpdateBytes(layout, *optimizer, static_cast<int>(workers), holding.held / n),
          .activations = static_cast<double>(activation_bytes),
          .kernels = on_gpu ? KernelBytes(config) : static_cast<double>(scratch_bytes),
          .digests = on_gpu ? static_cast<double>(DigestMemoryBytes(state)) : 0};
}

absl::StatusOr<size_t> CpuScratchBytes(const Config& config, Model& model, int64_t workers_here) {
  ASSIGN_OR_RETURN(const kernels::Arithmetic arithmetic, ArithmeticOf(config.train));
  const int64_t threads =
      config.train.threads > 0 ? config.train.threads : std::max<int64_t>(1, AvailableProcessors() / workers_here);
  return PlanScratch(model, config.batch.microbatch_size, config.batch.sequence_length, arithmetic,
                     static_cast<int>(threads));
}

absl::Status CheckHostMemory(const MemoryEstimate& e, const Config& config, int64_t workers_here) {
  constexpr double kProcess = 16 << 20;  // measured of workers of a small model, beyond what is counted
  const double available = AvailableHostBytes() / static_cast<double>(workers_here), needed = e.total() + kProcess;
  if (available == 0 || needed <= available) return absl::OkStatus();
  return OutOfMemoryError(
      absl::StrCat(workers_here == 1 ? "this run" : "each worker of this run", " needs ", FormatBytes(needed),
                   " of memory (the process ", FormatBytes(kProcess), ", weights ", FormatBytes(e.weights + e.frozen),
                   ", gradients ", FormatBytes(e.gradients), ", optimizer ", FormatBytes(e.optimizer), ", activations ",
                   FormatBytes(e.activations), ", kernels' working memory ", FormatBytes(e.kernels), "), but only ",
                   FormatBytes(available), workers_here == 1 ? " are" : " for each are", " available; ",
                   MemoryAdvice(config, workers_here, e)));
}

absl::Status CheckHostMemory(const std::string& directory, const ParameterLayout& model, DType compute_dtype,
                             size_t activation_bytes) {
  const auto weights = static_cast<double>(ReadOnlyWeights::Bytes(model, ReadOnlyWeights::All, compute_dtype));
  const auto activations = static_cast<double>(activation_bytes);
  const double available = AvailableHostBytes();
  if (available == 0 || weights + activations <= available) return absl::OkStatus();
  return OutOfMemoryError(absl::StrCat(
      directory, " needs ", FormatBytes(weights + activations), " of memory (weights ", FormatBytes(weights),
      ", activations ", FormatBytes(activations), "), but only ", FormatBytes(available), " are available; ",
      compute_dtype == DType::kBF16 ? "" : "--dtype bf16 and ", "shorter or fewer sequences take less"));
}

}  // namespace holdfast
