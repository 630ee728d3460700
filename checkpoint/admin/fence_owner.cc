#include "checkpoint/admin/fence_owner.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/config/printable.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr char kPrefix[] = "fence-";
constexpr uint64_t kMaxClaimBytes = 64 << 10;
constexpr size_t kMaxOwnerBytes = 200;

std::string OwnerIn(const std::string& claim) {
  const auto json = nlohmann::json::parse(claim, nullptr, /*allow_exceptions=*/false);
  const bool has = json.is_object() && json.contains("owner") && json["owner"].is_string();
  return has ? json["owner"].get<std::string>() : "somebody";
}

enum class Life { kDead, kAlive, kUnknown };

/// Of an owner as FenceOwner writes it: "process PID on HOST, ...".
Life LifeOf(const std::string& owner) {
  const std::vector<std::string> words = absl::StrSplit(owner.substr(0, owner.find(", ")), ' ');
  int pid = 0;
  if (words.size() != 4 || words[0] != "process" || words[2] != "on" || words[3] != HostName()) return Life::kUnknown;
  if (!absl::SimpleAtoi(words[1], &pid) || pid <= 0) return Life::kUnknown;
  if (pid == getpid()) return Life::kDead;  // one that had our number before us
  return kill(pid, 0) == 0 || errno == EPERM ? Life::kAlive : Life::kDead;
}

}  // namespace

std::string FenceOwner(const std::string& what) {
  return absl::StrCat("process ", getpid(), " on ", HostName(), ", ", what);
}

absl::Status CheckNotInUse(Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<StoredObject> claims, storage.List(kPrefix));
  if (claims.empty()) return absl::OkStatus();
  const auto claim = ReadObject(storage, claims.back().name, kMaxClaimBytes);  // names sort as their epochs
  if (absl::IsNotFound(claim.status()))
    return absl::UnavailableError("another process has just claimed the checkpoints; try again");
  RETURN_IF_ERROR(claim.status());
  const std::string owner = OwnerIn(*claim);
  const std::string shown = Printable(owner, kMaxOwnerBytes);
  switch (LifeOf(owner)) {
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
