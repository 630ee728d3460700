#pragma once
// How the members of a new world tell each other where they listen. Production goes through the coordinator, tests
// through memory.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Gives `mine` to all members and returns everybody's, by rank. Called once per world, by every member. Aborted when
  /// the world has changed, DeadlineExceeded when somebody does not come.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) = 0;
};

}  // namespace holdfast
