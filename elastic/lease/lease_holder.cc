#include "elastic/lease/lease_holder.h"

#include "absl/strings/str_cat.h"

namespace holdfast {

// Nothing there: the store has lost it, or an operator has removed it; it is written anew.
void LeaseHolder::Saw(const LeaseSight& there) {
  if (!there.text.owner.empty() && there.text.owner != owner_) lost_to_ = there.text.Name();
  version_ = there.version;
  if (lost()) version_.reset();  // nothing of ours is written any more
}

// Also a write that was refused, or of which nobody knows: it may have been an earlier one of ours that arrived late.
void LeaseHolder::Wrote(Instant asked, const absl::StatusOr<std::string>& version) {
  version_.reset();
  if (!version.ok()) return;
  renewed_ = asked;
  if (!version->empty() && !lost()) version_ = *version;
}

absl::Status LeaseHolder::Check(Instant now) const {
  if (lost()) {
    return absl::FailedPreconditionError(
        absl::StrCat(where_, " has been taken by ", lost_to_, ": that process leads the run now, and this one stops"));
  }
  if (renewed_.has_value() && now - *renewed_ < lasts_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(where_, " could not be renewed in time, so that another coordinator may lead the run"));
}

}  // namespace holdfast
