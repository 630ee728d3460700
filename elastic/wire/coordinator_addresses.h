#pragma once
// Which coordinator to try next, where there are several of which one leads.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

/// Says where the one that leads is reached; may take as long as a request to where that stands.
using LeaderFinder = std::function<absl::StatusOr<std::string>()>;

/// Thread-safety: none.
class CoordinatorAddresses {
 public:
  /// `given`: HOST[:PORT], several with commas between. `file`: where the coordinator that leads notes its address;
  /// empty if there is none. `find`, if it is given, is asked instead of the file. One that is noted comes first,
  /// unless this machine alone could reach it and those given are others.
  explicit CoordinatorAddresses(const std::string& given, std::string file = "", LeaderFinder find = nullptr);

  /// Each in turn, from the first again when there are no more, or when the file names another one than the last time.
  std::string Next();
  /// All that Next would give.
  std::vector<std::string> All() const;
  /// There is a place where the one that leads is noted.
  bool looks() const { return find_ != nullptr || !file_.empty(); }
  /// That place names another one than at the last Next, which is not the one that Next gave.
  bool HasMoved();

 private:
  /// "" if none is.
  std::string Noted() const;
  std::vector<std::string> With(const std::string& noted) const;

  std::vector<std::string> given_;
  const std::string file_;
  const LeaderFinder find_;
  std::string noted_;  // at the last Next
  std::string used_;   // what that gave
  size_t next_ = 0;
};

}  // namespace holdfast
