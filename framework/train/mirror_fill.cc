#include "framework/train/mirror_fill.h"

#include <utility>

namespace holdfast {

MirrorFill::MirrorFill(Parts parts)
    : parts_(std::move(parts)),
      source_(parts_.target->map().layout(), parts_.target->map().compute_dtype(), parts_.source),
      arguments_{.source = &source_,
                 .target = &parts_.target->map(),
                 .source_ranks = parts_.source_ranks,
                 .old_state = parts_.old_state,
                 .new_state = &parts_.target->state(),
                 .world = parts_.communicator.get(),
                 .timeout = parts_.timeout},
      bytes_(MirrorBytes(arguments_, parts_.target->rank())) {}

MirrorFill::~MirrorFill() { Abort("the world has changed"); }

void MirrorFill::Start() {
  thread_.Post([this] {
    status_ = TransferMirrors(arguments_, *parts_.progress).status();
    parts_.done(status_);
  });
}

absl::Status MirrorFill::Finish() {
  thread_.Drain();
  return status_;
}

}  // namespace holdfast
