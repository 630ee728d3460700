#pragma once
// Options about the connection to a coordinator.

#include "CLI/CLI.hpp"
#include "elastic/wire/grpc_link.h"

namespace holdfast {

/// --coordinator, --token-file and those of AddTlsOptions.
void AddConnectionOptions(CLI::App& command, ConnectionOptions& connection);

/// --tls-certificate, --tls-key and --tls-authority.
void AddTlsOptions(CLI::App& command, TlsFiles& tls);

}  // namespace holdfast
