#include "elastic/control/messages.h"

#include <algorithm>

namespace holdfast {

int World::num_leaving() const {
  return static_cast<int>(std::count_if(members.begin(), members.end(), [](const Member& m) { return m.leaves; }));
}

double World::peak_flops() const {
  double sum = 0;
  for (const Member& member : members) {
    if (member.peak_flops == 0) return 0;
    sum += member.peak_flops;
  }
  return sum;
}

int World::RankOf(const WorkerId& id) const {
  for (int rank = 0; rank < size(); ++rank) {
    if (members[static_cast<size_t>(rank)].id == id) return rank;
  }
  return -1;
}

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
