#include "tools/cli/command.h"

#include "absl/strings/cord.h"

namespace holdfast {
namespace {

constexpr char kUsage[] = "holdfast/usage";  // payload of a UsageError

}  // namespace

absl::Status UsageError(absl::string_view text) {
  absl::Status status = absl::InvalidArgumentError(text);
  status.SetPayload(kUsage, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsage).has_value(); }

}  // namespace holdfast
