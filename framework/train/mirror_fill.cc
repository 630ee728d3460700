#include "framework/train/mirror_fill.h"

#include <utility>

namespace holdfast {

MirrorFill::MirrorFill(Parts parts)
    : parts_(std::move(parts)),
      bytes_(ReceivedBytes(parts_.target->state().layout(), parts_.transfers, parts_.target->rank())) {}

MirrorFill::~MirrorFill() { Abort("the world has changed"); }

void MirrorFill::Start() {
  thread_.Post([this] {
    const TransferArguments arguments{.old_state = parts_.old_state,
                                      .new_state = &parts_.target->state(),
                                      .world = parts_.communicator.get(),
                                      .timeout = parts_.timeout};
    status_ = TransferMirrors(arguments, parts_.transfers, *parts_.progress).status();
    parts_.done(status_);
  });
}

absl::Status MirrorFill::Finish() {
  thread_.Drain();
  return status_;
}

}  // namespace holdfast
