#include "elastic/control/messages.h"

namespace holdfast {

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kRendezvous:
      return "rendezvous";
    case Phase::kTransfer:
      return "transfer";
    case Phase::kData:
      return "data";
    case Phase::kForwardBackward:
      return "forward_backward";
    case Phase::kReduce:
      return "reduce";
    case Phase::kVote:
      return "vote";
    case Phase::kUpdate:
      return "update";
    case Phase::kValidation:
      return "validation";
    case Phase::kSave:
      return "save";
    case Phase::kIdle:
      return "idle";
  }
  return "unknown";
}

}  // namespace holdfast
