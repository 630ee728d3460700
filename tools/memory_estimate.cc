#include "tools/memory_estimate.h"

#include <fstream>
#include <string>

#include "framework/base/status.h"
#include "framework/metrics/progress.h"
#include "framework/parallel/summation_tree.h"

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

}  // namespace

MemoryEstimate EstimateMemory(const Config& config, const ParameterLayout& layout, size_t activation_bytes) {
  const auto n = static_cast<double>(layout.elements());
  double matrices = 0;
  for (const ParameterSpec& p : layout.parameters()) {
    if (p.is_matrix()) matrices += static_cast<double>(p.shape.elements());
  }
  const bool bf16 = config.train.compute_dtype == ComputeDType::kBF16;
  return {.weights = n * 4 + (bf16 ? matrices * 2 : 0.0),
          .gradients = n * 4 * SummationTree::MaxBuffers(config.batch.microbatches),
          .optimizer = n * 8,
          .activations = static_cast<double>(activation_bytes)};
}

absl::Status CheckHostMemory(const MemoryEstimate& e) {
  const double available = AvailableHostBytes();
  if (available == 0 || e.total() <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "this run needs ", FormatBytes(e.total()), " of memory (weights ", FormatBytes(e.weights), ", gradients ",
      FormatBytes(e.gradients), ", optimizer ", FormatBytes(e.optimizer), ", activations ", FormatBytes(e.activations),
      "), but only ", FormatBytes(available),
      " are available; lower batch.microbatch_size or batch.microbatches, set train.recompute: block, or use a smaller "
      "model"));
}

}  // namespace holdfast
