#pragma once
// Which hosts of a sweep can be reached, as what is started there shows. Pure: the time is an argument.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast {

class HostHealth {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit HostHealth(size_t hosts) : hosts_(hosts) {}

  /// Something that was started there, and was to stay, ended after `lived`. Says for how long the host is left out
  /// now, if it is: after three that did not live for kSettled, with nothing between them that did.
  std::optional<std::chrono::seconds> OnEnd(size_t host, std::chrono::milliseconds lived, TimePoint now);
  bool IsUsable(size_t host, TimePoint now) const { return now >= hosts_[host].out_until; }

 private:
  struct Host {
    int64_t failures = 0;  // in a row
    TimePoint out_until{};
  };
  std::vector<Host> hosts_;
};

}  // namespace holdfast
