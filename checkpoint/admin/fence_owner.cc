#include "checkpoint/admin/fence_owner.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/fence.h"
#include "framework/base/process_id.h"
#include "framework/base/status.h"
#include "framework/config/printable.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr char kPrefix[] = "fence-";
constexpr size_t kMaxOwnerBytes = 200;

struct Owner {
  std::string shown;
  ProcessId process;
};

Owner OwnerIn(const std::string& claim) {
  const auto json = nlohmann::json::parse(claim, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key, const char* otherwise) -> std::string {
    const bool has = json.is_object() && json.contains(key) && json[key].is_string();
    return has ? json[key].get<std::string>() : otherwise;
  };
  return {Printable(text("owner", "somebody"), kMaxOwnerBytes), ParseProcessId(text(kFenceProcessKey, ""))};
}

}  // namespace

std::string FenceOwner(const std::string& what) { return absl::StrCat(Describe(ThisProcess()), ", ", what); }

absl::Status CheckNotInUse(Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<StoredObject> claims, storage.List(kPrefix));
  if (claims.empty()) return absl::OkStatus();
  const auto claim = ReadObject(storage, claims.back().name, kFenceClaimBytesMax);  // names sort as their epochs
  if (absl::IsNotFound(claim.status()))
    return absl::UnavailableError("another process has just claimed the checkpoints; try again");
  RETURN_IF_ERROR(claim.status());
  const auto [shown, process] = OwnerIn(*claim);
  if (process == ThisProcess()) return absl::OkStatus();
  switch (LifeOf(process)) {
    case Life::kDead:
      return absl::OkStatus();
    case Life::kAlive:
      return absl::FailedPreconditionError(
          absl::StrCat(storage.Describe(), " is in use by ", shown, ", which is running"));
    case Life::kUnknown:
      break;
  }
  return absl::FailedPreconditionError(absl::StrCat(storage.Describe(), " was used last by ", shown,
                                                    "; this machine cannot tell whether it still runs"));
}

}  // namespace holdfast
