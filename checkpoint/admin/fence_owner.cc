#include "checkpoint/admin/fence_owner.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/fence.h"
#include "framework/base/process_id.h"
#include "framework/base/status.h"
#include "framework/config/printable.h"

namespace holdfast {
namespace {

constexpr size_t kMaxOwnerBytes = 200;

}  // namespace

std::string FenceOwner(const std::string& what) { return absl::StrCat(Describe(ThisProcess()), ", ", what); }

absl::Status CheckNotInUse(Storage& storage) {
  ASSIGN_OR_RETURN(const std::optional<ClaimOwner> claim, ReadOwner(storage));
  if (!claim.has_value() || claim->process == ThisProcess()) return absl::OkStatus();
  const std::string owner = Printable(claim->owner, kMaxOwnerBytes);
  switch (LifeOf(claim->process)) {
    case Life::kDead:
      return absl::OkStatus();
    case Life::kAlive:
      return absl::AbortedError(absl::StrCat(storage.Describe(), " is in use by ", owner, ", which is running"));
    case Life::kUnknown:
      break;
  }
  return absl::FailedPreconditionError(absl::StrCat(storage.Describe(), " was used last by ", owner,
                                                    "; this machine cannot tell whether it still runs"));
}

}  // namespace holdfast
