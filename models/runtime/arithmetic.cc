#include "models/runtime/arithmetic.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

using kernels::Arithmetic;

ArithmeticChoice ChoiceOf(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kAvx512Bf16:
      return ArithmeticChoice::kAvx512Bf16;
    case Arithmetic::kAmxBf16:
      return ArithmeticChoice::kAmxBf16;
    case Arithmetic::kPortable:
      break;
  }
  return ArithmeticChoice::kPortable;
}

absl::Status Unavailable(ArithmeticChoice choice) {
  return absl::FailedPreconditionError(
      absl::StrCat("train.arithmetic: ", Name(choice), " needs ",
                   choice == ArithmeticChoice::kNative ? "bf16 instructions" : "instructions",
                   " that this processor lacks; use a processor that has them, or train.arithmetic: portable"));
}

/// The fastest that is not portable.
absl::StatusOr<Arithmetic> NativeArithmetic() {
  for (Arithmetic arithmetic : {Arithmetic::kAmxBf16, Arithmetic::kAvx512Bf16}) {
    if (kernels::CpuHas(arithmetic)) return arithmetic;
  }
  return Unavailable(ArithmeticChoice::kNative);
}

}  // namespace

absl::StatusOr<Arithmetic> ArithmeticOf(const TrainConfig& train) {
  if (train.compute_dtype == ComputeDType::kF32) return Arithmetic::kPortable;  // there are no bf16 products
  switch (train.arithmetic) {
    case ArithmeticChoice::kAuto:
      return kernels::FastestArithmetic();
    case ArithmeticChoice::kPortable:
      return Arithmetic::kPortable;
    case ArithmeticChoice::kNative:
      return NativeArithmetic();
    case ArithmeticChoice::kAvx512Bf16:
    case ArithmeticChoice::kAmxBf16:
      break;
  }
  const Arithmetic named = *kernels::ArithmeticOf(Name(train.arithmetic));
  if (!kernels::CpuHas(named)) return Unavailable(train.arithmetic);
  return named;
}

absl::Status ResolveArithmetic(TrainConfig* train, const std::string& run_config) {
  if (train->device != DeviceKind::kCpu) return absl::OkStatus();
  std::error_code error;
  if (train->arithmetic == ArithmeticChoice::kAuto && !run_config.empty() &&
      std::filesystem::exists(run_config, error)) {
    const absl::StatusOr<Config> before = LoadStoredConfig(run_config, FamilyPresets());
    if (before.ok() && before->train.device == DeviceKind::kCpu && ArithmeticOf(before->train).ok()) {
      train->arithmetic = before->train.arithmetic;
    }
  }
  const bool named = train->arithmetic != ArithmeticChoice::kAuto && train->arithmetic != ArithmeticChoice::kNative;
  // A process that only coordinates need not have what its workers compute in.
  if (named && train->compute_dtype == ComputeDType::kBF16) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Arithmetic arithmetic, ArithmeticOf(*train));
  train->arithmetic = ChoiceOf(arithmetic);
  return absl::OkStatus();
}

}  // namespace holdfast
