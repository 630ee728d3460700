#pragma once
// How a worker, an agent or a command reaches the coordinator of its run over gRPC.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/control/control_link.h"
#include "elastic/wire/control_client.h"

namespace holdfast {

struct ConnectionOptions {
  std::string coordinator;  // HOST:PORT, or several with commas between
  std::string token_file;
  TlsFiles tls;
  std::string address_file{};               // as ControlClientOptions has it
  LeaderFinder find_leader{};               // the same
  std::string lease{};                      // that it looks into
  std::chrono::milliseconds counted_on{0};  // as WithoutFiles has it

  /// Lease, token and certificates as options of a command; paths are made absolute.
  std::vector<std::string> Arguments() const;
  /// Reads the token.
  absl::StatusOr<ControlClientOptions> ClientOptions() const;
};

/// Not started yet.
absl::StatusOr<std::unique_ptr<ControlLink>> MakeControlLink(const ConnectionOptions& options);

}  // namespace holdfast
