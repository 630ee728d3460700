#include "kernels/cpu/cpu_ops.h"

#include <memory>

#include "hwy/targets.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_onednn.h"

namespace holdfast::kernels {

CpuOps::CpuOps(Executor& executor, GemmBackend backend) : executor_(executor), backend_(backend) {
  const bool wanted = backend == GemmBackend::kOneDnn || (backend == GemmBackend::kAuto && OneDnnGemm::Pays());
  if (wanted) onednn_ = std::make_unique<OneDnnGemm>();
}

CpuOps::~CpuOps() = default;

void CpuOps::Gemm(const GemmArgs& args) {
  const bool suits = backend_ == GemmBackend::kOneDnn || args.a.dtype == DType::kBF16;
  if (onednn_ != nullptr && suits && onednn_->Run(executor_, args)) return;
  OwnGemm(executor_, args);
}

std::unique_ptr<Ops> MakeCpuOps(Executor& executor) { return std::make_unique<CpuOps>(executor); }

const char* CpuInstructionSet() {
  // The lowest bit set is the best target the processor supports.
  const int64_t supported = hwy::SupportedTargets();
  return hwy::TargetName(supported & -supported);
}

}  // namespace holdfast::kernels
