#pragma once
// What a process knows of a lease in a store that it takes and renews. Pure: time and answers are given.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/lease/lease_watch.h"

namespace holdfast {

/// A lease is counted from when its renewal was asked for, since the store may have written it at once and its answer
/// have taken long; less a margin, for what is done after a look and for clocks that do not run alike. Whoever waits
/// counts from when it has seen the renewal, which is later. Thread-safety: none.
class LeaseHolder {
 public:
  using Instant = std::chrono::nanoseconds;
  /// `where`: for messages. `owner`: as it stands in the lease.
  LeaseHolder(Instant lease, std::string where, std::string owner)
      : lasts_(lease - lease / 10), where_(std::move(where)), owner_(std::move(owner)) {}

  /// In the place of what was seen, ours is to be written.
  void Takes(const LeaseSight& seen) { version_ = seen.version; }
  /// What is to be replaced next; nothing while nobody knows what stands there, so that it must be looked at.
  const std::optional<std::string>& version() const { return version_; }
  /// The look has shown this.
  void Saw(const LeaseSight& there);
  /// A write in the place of `version`, asked for at `asked`, has been answered by this.
  void Wrote(Instant asked, const absl::StatusOr<std::string>& version);

  bool lost() const { return !lost_to_.empty(); }
  /// FailedPrecondition once another one has had the lease; Unavailable while it may be over.
  absl::Status Check(Instant now) const;

 private:
  const Instant lasts_;
  const std::string where_, owner_;
  std::optional<Instant> renewed_;  // when it was asked for
  std::optional<std::string> version_;
  std::string lost_to_;
};

}  // namespace holdfast
