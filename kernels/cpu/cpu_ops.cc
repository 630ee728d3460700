#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>

#define HWY_DISABLE_PCLMUL_AES  // as foreach_target.h says: HWY_TARGETS must be its
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace holdfast::kernels {
namespace {

/// As processors call it; Highway's names of AVX-512 are its own.
std::string NameOfTarget(int64_t target) {
  const std::string name = hwy::TargetName(target);
  return name == "AVX3" ? "AVX-512" : name;
}

bool IsSameName(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::unique_ptr<Ops> MakeCpuOps(Executor& executor, Arithmetic arithmetic) {
  return std::make_unique<CpuOps>(executor, arithmetic);
}

std::vector<std::string> CpuInstructionSets() {
  std::vector<std::string> names;
  uint64_t supported = static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  for (; supported != 0; supported &= supported - 1) {  // the lowest bit is the best
    names.push_back(NameOfTarget(static_cast<int64_t>(supported & -supported)));
  }
  return names;
}

bool UseCpuInstructionSet(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  int64_t chosen = 0;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    if (IsSameName(name, NameOfTarget(target)) || IsSameName(name, hwy::TargetName(target))) chosen = target;
  }
  if (!name.empty()) hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return name.empty() || chosen != 0;
}

}  // namespace holdfast::kernels
