#pragma once
// Who is to blame when collectives fail although everybody seems to be there: a link between two hosts may be cut while
// both still reach the coordinator. One failure proves nothing; whoever is named in several consecutive worlds is
// removed.
//
// Thread-safety: none.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

class Blame {
 public:
  /// A member's report of a failure in the world at hand.
  void Add(const World& world, int reporter, const FailureMessage& failure);

  struct Verdict {
    std::optional<WorkerId> culprit;  // named in kWorlds consecutive worlds, this one included
    std::string cause;                // the first report's that is not secondhand
    bool at_home = false;             // nobody is named
    // Of all that was reported and is not secondhand:
    bool out_of_memory = false;
    bool no_room = false;
  };
  /// Ends the world at hand.
  Verdict Conclude(const World& world);
  /// Whether so far one member failed by itself and named nobody: no file descriptors, no memory, a full disk.
  bool IsAtHome() const { return named_.empty() && reporters_.size() == 1; }
  /// Ends the world at hand; somebody was seen to be lost, so that what was reported says nothing.
  void Drop();
  /// A step was committed: all is well.
  void Clear();

  int64_t failed_worlds() const { return failed_worlds_; }  // on end

 private:
  static constexpr int64_t kWorlds = 3;

  std::string cause_;
  std::vector<int> reporters_;
  size_t out_of_memory_ = 0, no_room_ = 0;  // of them
  std::map<WorkerId, int64_t> named_;       // in the world at hand: by how many
  std::map<WorkerId, int64_t> worlds_;
  int64_t failed_worlds_ = 0;
};

}  // namespace holdfast
