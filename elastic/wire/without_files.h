#pragma once
// When a process that cannot connect ends because it may open no file (EMFILE). Pure: time and errors are given.

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace holdfast {

/// It reaches nobody, and what is started in its place may have another limit. One that was connected may hold what
/// others count on, a state or workers, so it stays for as long as they do. Thread-safety: none.
class WithoutFiles {
 public:
  using Instant = std::chrono::nanoseconds;
  static constexpr std::chrono::seconds kLongest{10};

  /// `counted_on`: for how long others count on one that was connected.
  WithoutFiles(Instant now, std::chrono::milliseconds counted_on) : counted_on_(counted_on), since_(now) {}

  void Disconnected(Instant now) {
    since_ = now;
    was_connected_ = true;
  }
  /// An attempt to connect has failed, and opening a file with `error` (errno; 0: it can be opened). Whether it is to
  /// end.
  bool ConnectFailed(Instant now, int error) {
    if (error != EMFILE) since_ = now;
    return now - since_ >= (was_connected_ ? std::max<Instant>(kLongest, counted_on_) : kLongest);
  }

 private:
  const Instant counted_on_;
  Instant since_;  // that it may open none
  bool was_connected_ = false;
};

}  // namespace holdfast
