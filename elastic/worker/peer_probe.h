#pragma once
// Whether machines can reach each other, tried apart from what their workers do: whoever listens here answers every
// connection, by the kernel's hand alone, so also while the process is frozen or busy. It carries no data.
//
// Example:
//   ASSIGN_OR_RETURN(auto probe, PeerProbe::Listen("10.0.0.3"));
//   probe->Start({"10.0.0.4:41234"}, [](std::vector<double> seconds) { ... });  // {0.0002}; {-1}: not reached

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/net/socket_address.h"

namespace holdfast {

/// Thread-safe.
class PeerProbe {
 public:
  /// On a free port of `host`, a name or a numeric address of this machine.
  static absl::StatusOr<std::unique_ptr<PeerProbe>> Listen(const std::string& host);
  ~PeerProbe();
  PeerProbe(const PeerProbe&) = delete;
  PeerProbe& operator=(const PeerProbe&) = delete;

  /// Where others reach it: "10.0.0.3:41234", "[fe80::1]:41234".
  const std::string& address() const { return address_; }

  /// Tries all at once, on a thread of its own. `done`: seconds until each was reached, -1 for who was not within
  /// kLimit. One round at a time: a later one replaces one that waits.
  using Done = std::function<void(std::vector<double> seconds)>;
  void Start(std::vector<std::string> addresses, Done done);

  static constexpr std::chrono::milliseconds kLimit{2000};

 private:
  explicit PeerProbe(Listener listener);
  void Answer(const std::stop_token& stop) const;
  void Work(const std::stop_token& stop);

  struct Round {
    std::vector<std::string> addresses;
    Done done;
  };
  const FileDescriptor listener_;
  const std::string address_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Round> next_;  // under mutex_
  std::jthread answering_, working_;
};

}  // namespace holdfast
