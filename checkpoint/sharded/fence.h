#pragma once
// Who may write checkpoints: who came last. And which of them no longer count (framework/base/branch.h): a claim
// carries the barriers of all claims before it.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Fence> fence, Fence::Claim(*storage, "node-3, process 4711, /runs/a"));
//   ... before and after the long part of a commit ...
//   RETURN_IF_ERROR(fence->Check());

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/base/branch.h"
#include "framework/base/process_id.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Generations begin anew with every claim, at epoch * kGenerationsPerEpoch, so that none repeats in a storage,
/// whichever run directory it was used by.
inline constexpr uint64_t kGenerationsPerEpoch = 1'000'000;

/// Whether an object of this name is a claim.
bool IsFenceClaim(absl::string_view name);

/// A writer's claim on a storage: an object "fence-0000000003.json" that was never there before. Who has the highest
/// epoch owns the checkpoints; who finds a higher one than its own has been replaced, and must write no manifest. A
/// random mark in it says whose it is: a number that has been removed may be taken again.
/// Thread-safety: none.
class Fence {
 public:
  struct Past {           // of the run that claims
    uint64_t generation;  // the last one it has used
    Branch branch;
  };
  /// `owner`, for messages: host, process, run directory; `process`, so that others can say whether it still runs.
  /// Removes older claims. Unavailable if others claim without end. `may_claim`, asked at each attempt between reading
  /// the claims that exist and making ours: an error of it is returned. Whoever it refuses from now on may be frozen
  /// after it was asked, and takes nothing from one that claims then: its number is taken, or is not the highest. Kept,
  /// and asked again before a claim that was removed is made anew (Check).
  static absl::StatusOr<std::unique_ptr<Fence>> Claim(Storage& storage, const std::string& owner, const Past& past = {},
                                                      const ProcessId& process = ThisProcess(),
                                                      const std::function<absl::Status()>& may_claim = nullptr);
  /// OK while we own it; FailedPrecondition, naming the new owner, afterwards. A claim of ours that has been removed is
  /// made anew if there is none but earlier ones of ours, as where a directory was put back; if there is, whatever its
  /// number, it is FailedPrecondition.
  absl::Status Check();
  /// Stores the barriers of `branch` as well, by claiming again after a Check. Does nothing if it has them.
  absl::Status GoBack(const Branch& branch);
  /// One of them has found that we do not. Any other error of the storage says nothing of it, whatever its code.
  bool lost() const { return lost_; }

  uint64_t epoch() const { return epoch_; }
  const Branch& branch() const { return branch_; }

 private:
  struct Identity {  // what all claims of one owner say
    std::string owner, process, mark;
  };
  Fence(Storage& storage, Identity identity, std::function<absl::Status()> may_claim, uint64_t epoch, Branch branch)
      : storage_(storage),
        identity_(std::move(identity)),
        may_claim_(std::move(may_claim)),
        epoch_(epoch),
        branch_(std::move(branch)) {}
  static std::string ClaimText(const Identity& identity, uint64_t epoch, const Branch& branch);
  absl::Status ClaimAnew();
  absl::Status TakeNext(const std::vector<uint64_t>& epochs, const std::string& next);
  absl::StatusOr<bool> HasOnlyOurEarlier(const std::vector<uint64_t>& epochs);
  absl::StatusOr<bool> AreOurs(const std::vector<uint64_t>& epochs);
  absl::Status Removed();

  Storage& storage_;
  Identity identity_;
  std::function<absl::Status()> may_claim_;
  uint64_t epoch_;
  Branch branch_;
  bool lost_ = false;
};

/// NotFound, saying what is missing, if nobody has claimed it: a disk that is not mounted, on this host or any more.
absl::Status CheckClaimed(Storage& storage);

struct ClaimOwner {
  std::string owner;  // for messages; "somebody" if the claim does not say
  ProcessId process;
};
/// As the claim in force says: whose `storage` is, nullopt if nobody has claimed it, and the barriers. DataLoss if
/// these cannot be read.
absl::StatusOr<std::optional<ClaimOwner>> ReadOwner(Storage& storage);
absl::StatusOr<Branch> ReadBranch(Storage& storage);

}  // namespace holdfast
