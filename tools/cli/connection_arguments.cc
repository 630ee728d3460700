#include "tools/cli/connection_arguments.h"

namespace holdfast {

void AddTlsOptions(CLI::App& command, TlsFiles& tls) {
  command.add_option("--tls-certificate", tls.certificate, "PEM file; with --tls-key and --tls-authority: mutual TLS");
  command.add_option("--tls-key", tls.key, "PEM file");
  command.add_option("--tls-authority", tls.authority, "PEM file");
}

void AddConnectionOptions(CLI::App& command, ConnectionOptions& connection) {
  command
      .add_option(
          "--coordinator", connection.coordinator,
          "HOST[:PORT] of the coordinator, or several with commas between, of which one leads; the default port "
          "is 29400")
      ->required();
  command.add_option("--token-file", connection.token_file, "file with the run's secret, mode 0600");
  AddTlsOptions(command, connection.tls);
}

}  // namespace holdfast
