#include "elastic/coordinator/run_digests.h"

#include <optional>

#include "framework/base/build.h"
#include "framework/config/decides.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "framework/tensor/kernel_digest.h"
#include "xxhash.h"

namespace holdfast {

uint64_t ConfigDigest(const Config& config) {
  Config same = OnlyKeysThat({Decides::kBits, Decides::kContent, Decides::kLayout}, config);
  same.train.arithmetic = {};  // is compared by itself, to be named
  const std::string text = PrintConfig(same);
  return XXH3_64bits(text.data(), text.size());
}

RunDigests DigestsOf(const Config& config) {
  RunDigests digests{.config = ConfigDigest(config), .arithmetic = "", .build = BuildId()};
  if (config.train.device != DeviceKind::kCpu) return digests;
  digests.arithmetic = Name(config.train.arithmetic);
  const std::optional<kernels::Arithmetic> arithmetic = kernels::ArithmeticOf(digests.arithmetic);
  if (arithmetic.has_value() && kernels::CpuHas(*arithmetic)) digests.kernels = KernelDigest(*arithmetic);
  return digests;
}

}  // namespace holdfast
