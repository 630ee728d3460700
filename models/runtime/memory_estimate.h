#pragma once
// What a run will need of memory, before it is started.

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/unit_schedule.h"
#include "models/runtime/pass_plans.h"

namespace holdfast {

/// Bytes of one of elastic.workers workers, by kind.
///
/// Not in it: the tokens, losses and statistics of microbatches; on a CPU what a digest takes while it is made (33
/// MiB), and the products of an optimizer; adapters of lora.init_from, which are freed before the first pass; on a GPU
/// CUDA's context and kernels and NCCL's buffers (some hundred MiB), kernels' working memory beyond the largest kinds
/// (below), and pinned CPU memory. Mirrors that lie in CPU memory (parallel.mirrors_on) are counted as if they lay on
/// the GPU.
struct MemoryEstimate {
  double weights = 0, frozen = 0, gradients = 0, optimizer = 0, activations = 0;
  // What kernels work in. On a GPU, grown by doubling: cuBLASLt's workspace, the fp32 copy of a router's input,
  // attention's sums; less where no product asks for more than the workspace. Digests: of a GPU only.
  double kernels = 0;
  double digests = 0;
  double total() const { return weights + frozen + gradients + optimizer + activations + kernels + digests; }
};

/// Whether elastic.workers workers compute the experts where they lie: tokens move, and weights are sharded.
bool ComputesInParts(const Config& config);

/// And whether two of a worker's passes take turns there.
bool OverlapsMicrobatches(const Config& config);

/// `model`: of all parameters. `activation_bytes`: what PlanPasses says, of two passes if they take turns; `schedule`:
/// of a training pass. Both of passes in parts, if ComputesInParts. `scratch_bytes`: CpuScratchBytes.
MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, size_t activation_bytes,
                              const UnitSchedule& schedule, size_t scratch_bytes = 0);
/// The same, of plans that have both.
MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& model, const PassPlans& plans);

/// What kernels of a worker on a CPU work in, if `workers_here` share this machine's processors.
absl::StatusOr<size_t> CpuScratchBytes(const Config& config, Model& model, int64_t workers_here);

/// ResourceExhausted, naming the largest parts and what to change in `config`, which the estimate is of, if the host
/// has less than that and a process's own memory left for each of `workers_here`.
absl::Status CheckHostMemory(const MemoryEstimate& estimate, const Config& config, int64_t workers_here);
/// The same of a saved model that is only evaluated.
absl::Status CheckHostMemory(const std::string& directory, const ParameterLayout& model, DType compute_dtype,
                             size_t activation_bytes);

}  // namespace holdfast
