#include "framework/train/mirror_fill.h"

#include <utility>

namespace holdfast {

MirrorFill::MirrorFill(Dependencies dependencies)
    : deps_(std::move(dependencies)),
      bytes_(ReceivedBytes(deps_.target->state().layout(), deps_.transfers, deps_.target->rank())) {}

MirrorFill::~MirrorFill() { Abort("the world has changed"); }

void MirrorFill::Start() {
  thread_.Post([this] {
    const TransferArguments arguments{.old_state = deps_.old_state,
                                      .new_state = &deps_.target->state(),
                                      .world = deps_.communicator.get(),
                                      .timeout = deps_.timeout};
    status_ = TransferMirrors(arguments, deps_.transfers, *deps_.progress).status();
    deps_.done(status_);
  });
}

absl::Status MirrorFill::Finish() {
  thread_.Drain();
  return status_;
}

}  // namespace holdfast
