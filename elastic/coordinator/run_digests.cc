#include "elastic/coordinator/run_digests.h"

#include <optional>

#include "framework/base/build.h"
#include "framework/config/decides.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "framework/tensor/kernel_digest.h"
#include "xxhash.h"

namespace holdfast {

namespace {

/// The resolved config, but for what may differ from machine to machine or is compared by itself.
std::string WhatIsTheSame(const Config& config) {
  Config same = OnlyKeysThat({Decides::kBits, Decides::kContent, Decides::kLayout}, config);
  same.train.arithmetic = {};  // is compared by itself, to be named
  return PrintConfig(same);
}

}  // namespace

uint64_t ConfigDigest(const Config& config) {
  const std::string text = WhatIsTheSame(config);
  return XXH3_64bits(text.data(), text.size());
}

RunDigests DigestsOf(const Config& config, const std::string& gpu) {
  RunDigests digests{.config = ConfigDigest(config), .arithmetic = "", .build = BuildId(), .keys = {}};
  for (const auto& [key, value] : ValuesByKey(WhatIsTheSame(config))) {
    digests.keys[key] = XXH32(value.data(), value.size(), 0);
  }
  if (config.train.device != DeviceKind::kCpu) {
    digests.arithmetic = gpu;
    if (!gpu.empty()) digests.kernels = XXH3_64bits(gpu.data(), gpu.size());
    return digests;
  }
  digests.arithmetic = Name(config.train.arithmetic);
  const std::optional<kernels::Arithmetic> arithmetic = kernels::ArithmeticOf(digests.arithmetic);
  if (arithmetic.has_value() && kernels::CpuHas(*arithmetic)) digests.kernels = KernelDigest(*arithmetic);
  return digests;
}

}  // namespace holdfast
