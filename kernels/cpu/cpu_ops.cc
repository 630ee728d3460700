#include "kernels/cpu/cpu_ops.h"

#include <memory>

#define HWY_DISABLE_PCLMUL_AES  // as foreach_target.h says: HWY_TARGETS must be its
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace holdfast::kernels {

std::unique_ptr<Ops> MakeCpuOps(Executor& executor, Arithmetic arithmetic) {
  return std::make_unique<CpuOps>(executor, arithmetic);
}

std::vector<std::string> CpuInstructionSets() {
  std::vector<std::string> names;
  uint64_t supported = static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  for (; supported != 0; supported &= supported - 1) {  // the lowest bit is the best
    names.emplace_back(hwy::TargetName(static_cast<int64_t>(supported & -supported)));
  }
  return names;
}

bool UseCpuInstructionSet(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  int64_t chosen = 0;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    if (name == hwy::TargetName(rest & -rest)) chosen = rest & -rest;
  }
  if (!name.empty()) hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return name.empty() || chosen != 0;
}

}  // namespace holdfast::kernels
