#pragma once
// Whether a step fails for everybody by the same damaged data. What cannot be read may come back; bytes that were read
// and are wrong are so again, unless another host has a copy that is whole.
//
// Thread-safety: none.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

class DamagedData {
 public:
  /// A member's report of a failure in the world at hand.
  void Add(const std::string& reporter, const FailureMessage& failure);
  /// Ends the world at hand, which failed.
  void Conclude();
  /// Ends the world at hand; somebody was seen to be lost, so that it says nothing.
  void Drop() { reports_.clear(); }
  /// A step was committed.
  void Clear();

  /// Consecutive worlds that failed at one step by one damage.
  int64_t worlds() const { return worlds_; }
  /// Whether this worker has met it, as an earlier process too.
  bool IsKnownTo(const std::string& worker) const { return reporters_.contains(worker); }
  int64_t step() const { return step_; }

 private:
  struct Report {
    std::string worker;
    int64_t step = 0;
    std::string cause;
  };

  std::vector<Report> reports_;  // in the world at hand
  int64_t step_ = 0;
  std::string cause_;
  int64_t worlds_ = 0;
  std::set<std::string> reporters_;
};

}  // namespace holdfast
