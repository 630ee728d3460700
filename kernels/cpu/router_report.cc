// What is told of a router's choices: loads, losses that depend on them, entropy. Once per layer and microbatch, so it
// is plain and serial.

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/views.h"
#include "kernels/portable_math.h"

namespace holdfast::kernels {
namespace {

struct RowSums {
  double balance = 0;  // <load, probabilities>
  double entropy = 0;
};

/// The tokens of expert e that the balance loss goes by, times `pooled_layers`.
int64_t Pooled(const RouterReportArgs& args, int64_t e, int64_t num_experts) {
  if (args.pooled == nullptr) return args.counts[e];
  int64_t sum = 0;
  for (int64_t layer = 0; layer < args.pooled_layers; ++layer) sum += args.pooled[layer * num_experts + e];
  return sum;
}

RowSums SumsOfRow(const RouterReportArgs& args, const double* loads, int64_t r, const RouterShape& shape) {
  const int64_t n = shape.num_experts;
  const float* scores = args.forward.scores + r * n;
  const float* logits = RowOf<float>(args.logits, r);
  const double lse = args.forward.lse[r];
  double all = 0, loaded = 0, logit = 0;
  for (int64_t e = 0; e < n; ++e) {
    const double score = scores[e], load = loads[e];
    const double probability = shape.score == RouterScore::kSoftmax ? score : portable::Exp(logits[e] - lse);
    all += score;
    loaded += load * score;
    logit += probability * logits[e];
  }
  const bool divides = shape.score == RouterScore::kSigmoid && all != 0;
  return {.balance = divides ? loaded / all : loaded, .entropy = lse - logit};
}

}  // namespace

void CpuOps::RouterReport(const RouterReportArgs& args, const RouterShape& shape) {
  const int64_t n = shape.num_experts, rows = args.logits.rows;
  double loads[kMaxExperts];
  for (int64_t e = 0; e < n; ++e) {
    const int64_t pooled = Pooled(args, e, n);
    loads[e] = static_cast<double>(pooled) / static_cast<double>(args.pooled_layers);
    if (args.slope != nullptr) {
      args.slope[e] = args.slope_scale * (static_cast<float>(pooled) / static_cast<float>(args.pooled_layers));
    }
    if (args.load != nullptr) args.load[e] = args.counts[e];
  }
  if (args.dropped != nullptr) *args.dropped = rows * shape.chosen - args.offsets[n];
  if (args.load == nullptr) return;
  double balance = 0, z = 0, entropy = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const RowSums row = SumsOfRow(args, loads, r, shape);
    const double lse = args.forward.lse[r];
    balance += row.balance;
    entropy += row.entropy;
    z += lse * lse;
  }
  const auto count = static_cast<double>(rows);
  *args.balance = static_cast<double>(n) * balance / (count * count);
  *args.z = z / count;
  *args.entropy = entropy / count;
}

}  // namespace holdfast::kernels
