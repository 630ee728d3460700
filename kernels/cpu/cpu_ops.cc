#include "kernels/cpu/cpu_ops.h"

#include <memory>

#include "hwy/targets.h"

namespace holdfast::kernels {

std::unique_ptr<Ops> MakeCpuOps(Executor& executor) { return std::make_unique<CpuOps>(executor); }

const char* CpuInstructionSet() {
  // The lowest bit set is the best target the processor supports.
  const int64_t supported = hwy::SupportedTargets();
  return hwy::TargetName(supported & -supported);
}

}  // namespace holdfast::kernels
