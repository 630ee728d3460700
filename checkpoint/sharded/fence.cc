#include "checkpoint/sharded/fence.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/sharded/branch_json.h"
#include "checkpoint/sharded/commit_crash_points.h"
#include "framework/base/host.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/storage/crash_point.h"

namespace holdfast {
namespace {

constexpr char kPrefix[] = "fence-", kOwnerKey[] = "owner", kProcessKey[] = "process", kMarkKey[] = "mark";
constexpr int kAttempts = 20;
constexpr uint64_t kClaimBytesMax = 1 << 20;
constexpr uint64_t kMaxEpoch = 9'999'999'999;  // ten digits, so that names sort as numbers

std::string ClaimName(uint64_t epoch) { return absl::StrFormat("%s%010d.json", kPrefix, epoch); }

std::optional<uint64_t> EpochOf(const std::string& name) {
  uint64_t epoch = 0;
  if (name.size() != ClaimName(0).size()) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(sizeof kPrefix - 1, 10), &epoch) || ClaimName(epoch) != name) return std::nullopt;
  return epoch;
}

/// Ascending.
absl::StatusOr<std::vector<uint64_t>> ListEpochs(Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage.List(kPrefix));
  std::vector<uint64_t> epochs;
  for (const StoredObject& object : objects) {
    if (const std::optional<uint64_t> epoch = EpochOf(object.name)) epochs.push_back(*epoch);
  }
  std::sort(epochs.begin(), epochs.end());
  return epochs;
}

std::string FieldOf(const std::string& claim, const char* key) {
  const nlohmann::json json = ParseJson(claim).value_or(nullptr);
  const bool has = json.is_object() && json.contains(key) && json[key].is_string();
  return has ? json[key].get<std::string>() : "";
}

ClaimOwner OwnerIn(const std::string& claim) {
  const std::string owner = FieldOf(claim, kOwnerKey);
  return {owner.empty() ? "somebody" : owner, ParseProcessId(FieldOf(claim, kProcessKey))};
}

absl::StatusOr<std::string> ReadClaim(Storage& storage, uint64_t epoch) {
  return ReadObject(storage, ClaimName(epoch), kClaimBytesMax);
}

absl::Status ClaimedWithoutEnd(Storage& storage) {
  return absl::UnavailableError(
      absl::StrCat(storage.Describe(), ": other processes keep claiming it; stop all but one"));
}

/// Nullopt if there is none.
absl::StatusOr<std::optional<std::string>> ReadClaimInForce(Storage& storage) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> epochs, ListEpochs(storage));
    if (epochs.empty()) return std::nullopt;
    absl::StatusOr<std::string> claim = ReadClaim(storage, epochs.back());
    if (!absl::IsNotFound(claim.status())) return claim;  // else somebody has just claimed anew
  }
  return ClaimedWithoutEnd(storage);
}

/// Whether the claim with that number is the one with that mark. No if there is none.
absl::StatusOr<bool> HasMark(Storage& storage, uint64_t epoch, const std::string& mark) {
  const absl::StatusOr<std::string> claim = ReadClaim(storage, epoch);
  if (absl::IsNotFound(claim.status())) return false;
  RETURN_IF_ERROR(claim.status());
  return FieldOf(*claim, kMarkKey) == mark;
}

std::string NewMark() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

absl::StatusOr<Branch> BranchIn(const Storage& storage, const std::string& claim) {
  absl::StatusOr<Branch> branch = BranchFromJson(ParseJson(claim).value_or(nullptr));
  if (branch.ok()) return branch;
  return absl::DataLossError(absl::StrCat(storage.Describe(), ": the ", kPrefix, "*.json with the highest number is ",
                                          "damaged (", branch.status().message(), "), so it is not known which ",
                                          "checkpoints were given up; remove it, and all of them count"));
}

}  // namespace

bool IsFenceClaim(absl::string_view name) { return EpochOf(std::string(name)).has_value(); }

std::string Fence::ClaimText(const Identity& identity, uint64_t epoch, const Branch& branch) {
  const nlohmann::json json{{"format", "holdfast fence"},    {"epoch", epoch},          {kOwnerKey, identity.owner},
                            {kProcessKey, identity.process}, {kMarkKey, identity.mark}, {kBarriersKey, ToJson(branch)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::Status CheckClaimed(Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> epochs, ListEpochs(storage));
  if (!epochs.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(storage.Describe(), " on ", HostName(),
                                          " is not the place that the run's coordinator has claimed: mount it"));
}

absl::StatusOr<std::optional<ClaimOwner>> ReadOwner(Storage& storage) {
  ASSIGN_OR_RETURN(const std::optional<std::string> claim, ReadClaimInForce(storage));
  if (!claim.has_value()) return std::nullopt;
  return OwnerIn(*claim);
}

absl::StatusOr<Branch> ReadBranch(Storage& storage) {
  ASSIGN_OR_RETURN(const std::optional<std::string> claim, ReadClaimInForce(storage));
  return claim.has_value() ? BranchIn(storage, *claim) : Branch();
}

absl::StatusOr<std::unique_ptr<Fence>> Fence::Claim(Storage& storage, const std::string& owner, const Past& past,
                                                    const ProcessId& process,
                                                    const std::function<absl::Status()>& may_claim) {
  Identity identity{.owner = owner, .process = ToText(process), .mark = NewMark()};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> before, ListEpochs(storage));
    const uint64_t least = past.generation / kGenerationsPerEpoch + 1;
    const uint64_t epoch = before.empty() ? least : std::max(least, before.back() + 1);
    if (epoch > kMaxEpoch) return absl::ResourceExhaustedError(absl::StrCat(storage.Describe(), ": no epoch is left"));
    ASSIGN_OR_RETURN(Branch branch, ReadBranch(storage));
    branch.GoBack(past.branch);
    // After the list: one that replaces us later lists later, so its number is not lower than ours.
    if (may_claim != nullptr) RETURN_IF_ERROR(may_claim());
    CrashPoint(kCrashFenceBefore);
    const absl::Status created = storage.Create(ClaimName(epoch), ClaimText(identity, epoch, branch));
    if (absl::IsAlreadyExists(created)) continue;
    RETURN_IF_ERROR(created);
    CrashPoint(kCrashFenceAfter);
    // Somebody may have claimed a higher number and removed the one we then took anew: only the highest one counts.
    ASSIGN_OR_RETURN(const std::vector<uint64_t> now, ListEpochs(storage));
    ASSIGN_OR_RETURN(const bool ours, HasMark(storage, epoch, identity.mark));
    if (!ours) continue;
    if (now.empty() || now.back() != epoch) {
      RETURN_IF_ERROR(storage.Delete(ClaimName(epoch)));
      continue;
    }
    for (const uint64_t old : now) {
      if (old < epoch) RETURN_IF_ERROR(storage.Delete(ClaimName(old)));
    }
    // Not make_unique: a private constructor.
    return std::unique_ptr<Fence>(new Fence(storage, std::move(identity), may_claim, epoch, std::move(branch)));
  }
  return ClaimedWithoutEnd(storage);
}

absl::Status Fence::Check() {
  ASSIGN_OR_RETURN(std::vector<uint64_t> epochs, ListEpochs(storage_));
  ASSIGN_OR_RETURN(const bool removed, HasOnlyOurEarlier(epochs));
  if (removed) {
    RETURN_IF_ERROR(ClaimAnew());
    ASSIGN_OR_RETURN(epochs, ListEpochs(storage_));
    if (epochs.empty()) return absl::UnavailableError(absl::StrCat(storage_.Describe(), ": our claims are removed"));
  }
  if (std::find(epochs.begin(), epochs.end(), epoch_ + 1) != epochs.end()) {
    const absl::StatusOr<std::string> next = ReadClaim(storage_, epoch_ + 1);
    if (!next.ok() && !absl::IsNotFound(next.status())) return next.status();
    if (next.ok() && FieldOf(*next, kMarkKey) == identity_.mark) return TakeNext(epochs, *next);
  }
  if (epochs.back() > epoch_) {
    lost_ = true;
    // For the message only: a claim that cannot be read is not worth an error of its own.
    const std::string owner = OwnerIn(ReadClaim(storage_, epochs.back()).value_or("")).owner;
    return absl::FailedPreconditionError(absl::StrCat(storage_.Describe(), " belongs to ", owner, " now (epoch ",
                                                      epochs.back(), ", ours is ", epoch_,
                                                      "): no checkpoint may be written there"));
  }
  ASSIGN_OR_RETURN(const bool ours, HasMark(storage_, epoch_, identity_.mark));
  return ours ? absl::OkStatus() : Removed();
}

// Of a directory that was moved away and put back after we had claimed another one in its place, say.
absl::StatusOr<bool> Fence::HasOnlyOurEarlier(const std::vector<uint64_t>& epochs) {
  for (const uint64_t epoch : epochs) {
    if (epoch >= epoch_) return false;
  }
  return AreOurs(epochs);
}

absl::StatusOr<bool> Fence::AreOurs(const std::vector<uint64_t>& epochs) {
  for (const uint64_t epoch : epochs) {
    ASSIGN_OR_RETURN(const bool ours, HasMark(storage_, epoch, identity_.mark));
    if (!ours) return false;
  }
  return true;
}

absl::Status Fence::Removed() {
  lost_ = true;
  return absl::FailedPreconditionError(absl::StrCat(storage_.Describe(), ": our claim ", ClaimName(epoch_),
                                                    " has been removed, and somebody else has claimed it since"));
}

// By a number that we have not had. Whoever was asked to lead in our place meanwhile has that number, a higher one, or,
// as it saw no claim, a lower one (TakeNext).
absl::Status Fence::ClaimAnew() {
  if (may_claim_ != nullptr) RETURN_IF_ERROR(may_claim_());
  LogWarning(storage_.Describe(), ": our claim ", ClaimName(epoch_), " has been removed; it is made anew");
  const absl::Status created = storage_.Create(ClaimName(epoch_ + 1), ClaimText(identity_, epoch_ + 1, branch_));
  return absl::IsAlreadyExists(created) ? absl::OkStatus() : created;
}

// The next number has our mark: we have just claimed anew, or in GoBack, or an answer was lost then. A number that is
// none of ours is of somebody who claimed while our claim was missing, and owns the storage; but if our claim is there
// it was never missing, and a lower one is left of a deletion that failed, or of somebody who takes it back (Claim).
absl::Status Fence::TakeNext(const std::vector<uint64_t>& epochs, const std::string& next) {
  ASSIGN_OR_RETURN(const bool held, HasMark(storage_, epoch_, identity_.mark));
  ASSIGN_OR_RETURN(const bool alone, AreOurs(epochs));
  if (epochs.back() != epoch_ + 1 || !(held || alone)) {
    RETURN_IF_ERROR(storage_.Delete(ClaimName(epoch_ + 1)));
    return Removed();
  }
  ASSIGN_OR_RETURN(branch_, BranchIn(storage_, next));
  const uint64_t before = epoch_++;
  for (const uint64_t old : epochs) {
    if (old == before || (alone && old < before)) RETURN_IF_ERROR(storage_.Delete(ClaimName(old)));
  }
  return absl::OkStatus();
}

// Not before a look: where our claim is missing it may be another place, in which to claim is not allowed (may_claim).
absl::Status Fence::GoBack(const Branch& branch) {
  const auto with_ours = [&] {
    Branch all = branch_;
    all.GoBack(branch);
    return all;
  };
  if (with_ours() == branch_) return absl::OkStatus();
  RETURN_IF_ERROR(Check());
  const Branch after = with_ours();  // those of a claim whose answer was lost are ours now
  if (after == branch_) return absl::OkStatus();
  const absl::Status created = storage_.Create(ClaimName(epoch_ + 1), ClaimText(identity_, epoch_ + 1, after));
  if (!absl::IsAlreadyExists(created)) RETURN_IF_ERROR(created);
  return Check();
}

}  // namespace holdfast
