#pragma once
// How a command reaches the coordinator.

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "elastic/control/control_link.h"
#include "elastic/wire/control_client.h"

namespace holdfast {

struct ConnectionOptions {
  std::string coordinator;  // HOST:PORT
  std::string token_file;
  TlsFiles tls;

  void AddTo(CLI::App& command);
  /// The same as arguments of another command; paths are made absolute.
  std::vector<std::string> Arguments() const;
  /// Reads the token.
  absl::StatusOr<ControlClientOptions> ClientOptions() const;
};

/// Not started yet.
absl::StatusOr<std::unique_ptr<ControlLink>> MakeControlLink(const ConnectionOptions& options);

/// The options --tls-certificate, --tls-key and --tls-authority.
void AddTlsOptions(CLI::App& command, TlsFiles& tls);

}  // namespace holdfast
