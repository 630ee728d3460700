#include "framework/base/out_of_memory.h"

#include "absl/strings/cord.h"

namespace holdfast {
namespace {

constexpr char kPayload[] = "holdfast.out_of_memory";

}  // namespace

absl::Status OutOfMemoryError(absl::string_view message) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsOutOfMemory(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

bool IsOutOfRoom(const absl::Status& status) { return absl::IsResourceExhausted(status) && !IsOutOfMemory(status); }

bool MayPass(const absl::Status& status) {
  return IsOutOfRoom(status) || absl::IsUnavailable(status) || absl::IsPermissionDenied(status);
}

}  // namespace holdfast
