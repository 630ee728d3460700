#pragma once
// Who is to be in the next world, and if there can be none, why. A pure function, shared by the coordinator's events,
// its status and the tests.

#include <string>
#include <vector>

#include "elastic/control/world.h"
#include "framework/config/config.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

/// A worker that is there.
struct Candidate {
  Member member;
  bool holds_state = false;  // its part, as a member of the source world
  bool was_member = false;   // of the world before
  bool quarantined = false;
  bool leaves =
      false;  // its node is to leave: in the world only while nobody else holds what it has, and to compute only
  int64_t arrival = 0;  // order of joining
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct WorldQuestion {
  std::vector<Candidate> candidates;
  World source;              // of the committed state; generation 0: there is none yet
  bool first = false;        // no world has been yet, and there is no state: it is worth waiting for everybody
  bool joined_long = false;  // elastic.join_timeout_ms have passed since the first worker joined
  UsedCells used = {};       // by the model
  bool ending = false;       // nothing is left to do but the end, for which nobody new is needed and few are enough
  friend bool operator==(const WorldQuestion&, const WorldQuestion&) = default;
};

struct WorldDecision {
  enum class Verdict { kPublish, kWait, kStateMissing };
  Verdict verdict = Verdict::kWait;
  std::vector<Member> members;  // those that stay first; ordered by node and name
  std::string detail;           // what is waited for, in words
  std::vector<Member> missing;  // kStateMissing: holders of state that nobody else has
};

WorldDecision DecideWorld(const ElasticConfig& elastic, const ParallelConfig& parallel, const WorldQuestion& question);

}  // namespace holdfast
