#include "framework/tensor/gpu_peaks.h"

#include <algorithm>
#include <array>

namespace holdfast {
namespace {

struct Peak {
  const char* gpu;
  double teraflops;
};

// NVIDIA's data sheets ("BFLOAT16 Tensor Core"; Hopper's give the figure with sparsity, twice this), for the exact
// clocks the architecture white papers; GeForce: the Ada white paper's table "FP16 with FP32 accumulate". Whole names
// only: a laptop's or a slice's begins the same and means something else.
constexpr std::array kPeaks = {
    Peak{"NVIDIA A100-SXM4-40GB", 312},
    Peak{"NVIDIA A100-SXM4-80GB", 312},
    Peak{"NVIDIA A100-PCIE-40GB", 312},
    Peak{"NVIDIA A100 80GB PCIe", 312},
    Peak{"NVIDIA H100 80GB HBM3", 989.4},  // SXM
    Peak{"NVIDIA H100 PCIe", 756},
    Peak{"NVIDIA H100 NVL", 835},
    Peak{"NVIDIA H200", 989.4},
    Peak{"NVIDIA H200 NVL", 835},
    Peak{"NVIDIA B200", 2250},
    Peak{"NVIDIA L40S", 362.05},
    Peak{"NVIDIA GeForce RTX 4090", 165.2},
};

}  // namespace

double PeakBf16Flops(const std::string& gpu) {
  const auto found = std::find_if(kPeaks.begin(), kPeaks.end(), [&](const Peak& peak) { return peak.gpu == gpu; });
  return found == kPeaks.end() ? 0 : found->teraflops * 1e12;
}

}  // namespace holdfast
