#pragma once
// Options about the connection to a coordinator.

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "elastic/wire/grpc_link.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// For an option that is HOST[:PORT]: what is wrong with it, empty if nothing is.
std::string AddressProblem(const std::string& text);
/// Empty if `text` is a host or an address without port and brackets.
std::string HostProblem(const std::string& text);

/// --coordinator, --lease, --token-file and those of AddTlsOptions.
void AddConnectionOptions(CLI::App& command, ConnectionOptions& connection);

/// --lease; `what` says what it is for.
void AddLeaseOption(CLI::App& command, std::string& lease, const std::string& what);

/// Has a client look where the leader is: in the lease if there is one, else where the run directory notes it. A usage
/// error if no coordinator is named and no lease, or if it is none.
absl::Status LookForLeader(const RunDirectory& directory, ConnectionOptions& connection);

/// --tls-certificate, --tls-key and --tls-authority.
void AddTlsOptions(CLI::App& command, TlsFiles& tls);

}  // namespace holdfast
