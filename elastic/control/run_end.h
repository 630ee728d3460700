#pragma once
// Whether a run works on, is to stop, or is over.
//
// Thread-safety: none.

#include <chrono>
#include <utility>
#include <variant>

#include "elastic/control/messages.h"

namespace holdfast {

class RunEnd {
 public:
  struct Stop {
    int signal = 0;
    std::chrono::nanoseconds since{0};
  };

  /// Null: nobody has asked for one, or the run is over.
  const Stop* stop() const { return std::get_if<Stop>(&state_); }
  Stop* stop() { return std::get_if<Stop>(&state_); }
  /// What everybody is told; null while the run is not over.
  const EndMessage* end() const { return std::get_if<EndMessage>(&state_); }
  bool over() const { return end() != nullptr; }

  /// The first request counts. False, and nothing changes, after it and after the end.
  bool Request(const Stop& stop) {
    if (!std::holds_alternative<Running>(state_)) return false;
    state_ = stop;
    return true;
  }
  /// False, and nothing changes, if the run is over already.
  bool End(EndMessage end) {
    if (over()) return false;
    state_ = std::move(end);
    return true;
  }

 private:
  struct Running {};
  std::variant<Running, Stop, EndMessage> state_;
};

}  // namespace holdfast
