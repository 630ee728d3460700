#include "elastic/coordinator/action_queue.h"

#include <algorithm>
#include <variant>

#include "framework/base/status.h"

namespace holdfast {
namespace {

bool IsDurable(const CoordinatorAction& action) {
  return std::holds_alternative<PersistAction>(action) || std::holds_alternative<RecordAction>(action) ||
         std::holds_alternative<RewindAction>(action);
}

}  // namespace

void ActionQueue::Add(std::vector<CoordinatorAction> actions) {
  must_look_ = must_look_ || !actions.empty();
  for (CoordinatorAction& action : actions) actions_.push_back(std::move(action));
}

bool ActionQueue::ends_run() const {
  return std::any_of(actions_.begin(), actions_.end(),
                     [](const CoordinatorAction& action) { return std::holds_alternative<EndAction>(action); });
}

absl::Status ActionQueue::Look() {
  absl::Status ours = is_ours_();
  replaced_ = replaced_ || absl::IsFailedPrecondition(ours);
  if (replaced_) actions_.clear();
  if (ours.ok()) must_look_ = false;
  return ours;
}

absl::Status ActionQueue::CarryOut() {
  while (!actions_.empty()) {
    if (must_look_) RETURN_IF_ERROR(Look());
    if (absl::Status done = do_(actions_.front()); !done.ok()) {
      // Whoever has taken the run has put other files in the place of those that we append to.
      if (absl::IsFailedPrecondition(done) || absl::IsUnavailable(done)) RETURN_IF_ERROR(Look());
      return done;
    }
    must_look_ = IsDurable(actions_.front());
    actions_.pop_front();
  }
  return must_look_ ? Look() : absl::OkStatus();
}

}  // namespace holdfast
