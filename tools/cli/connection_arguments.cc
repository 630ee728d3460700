#include "tools/cli/connection_arguments.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/lease/open_lease.h"
#include "elastic/wire/address.h"
#include "elastic/wire/coordinator_addresses.h"
#include "framework/base/status.h"
#include "framework/net/socket_address.h"
#include "tools/cli/command.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kLookTimeout{2000};  // of one look into a lease

std::string AddressesProblem(const std::string& text) {
  const std::vector<std::string> addresses = CoordinatorAddresses(text).All();
  if (addresses.empty() && !text.empty()) return absl::StrCat("HOST[:PORT] is expected, not '", text, "'");
  for (const std::string& address : addresses) {
    if (std::string problem = AddressProblem(address); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::string AddressProblem(const std::string& text) {
  return std::string(SplitHostAndPort(WithDefaultPort(text)).status().message());
}

std::string HostProblem(const std::string& text) {
  const auto colons = std::count(text.begin(), text.end(), ':');  // an IPv6 address has two or more
  if (colons != 1 && text.find('[') == std::string::npos) return "";
  return absl::StrCat("a host without port is expected, not '", text, "'");
}

void AddTlsOptions(CLI::App& command, TlsFiles& tls) {
  CLI::Option* certificate = command.add_option("--tls-certificate", tls.certificate,
                                                "PEM file; with --tls-key and --tls-authority: mutual TLS");
  CLI::Option* key = command.add_option("--tls-key", tls.key, "PEM file");
  CLI::Option* authority = command.add_option("--tls-authority", tls.authority, "PEM file");
  certificate->needs(key, authority);
  key->needs(certificate, authority);
  authority->needs(certificate, key);
}

void AddLeaseOption(CLI::App& command, std::string& lease, const std::string& what) {
  command.add_option("--lease", lease,
                     "etcd://HOST[:PORT][,HOST...]/NAME, etcds://... (TLS) or s3://BUCKET/NAME: " + what);
}

absl::Status LookForLeader(const RunDirectory& directory, ConnectionOptions& connection) {
  connection.address_file = directory.coordinator_address();
  if (connection.lease.empty() && connection.coordinator.empty()) {
    return UsageError("error: where is the coordinator? Pass --coordinator, or --lease");
  }
  if (connection.lease.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<LeaseStore>> store =
      OpenLeaseStore(connection.lease, kLookTimeout, /*may_lead=*/false);
  if (absl::IsInvalidArgument(store.status())) return UsageError(absl::StrCat("error: ", store.status().message()));
  RETURN_IF_ERROR(store.status());
  connection.find_leader = [store = std::shared_ptr<LeaseStore>(*std::move(store))] { return FindLeader(*store); };
  return absl::OkStatus();
}

void AddConnectionOptions(CLI::App& command, ConnectionOptions& connection) {
  command
      .add_option("--coordinator", connection.coordinator,
                  "HOST[:PORT] of the coordinator, or several with commas between, of which one leads; the default "
                  "port is 29400; not needed with --lease")
      ->check(AddressesProblem);
  AddLeaseOption(command, connection.lease, "where the coordinator that leads notes its address");
  command.add_option("--token-file", connection.token_file,
                     "file with the run's secret, mode 0600; default of an agent: that of the run directory");
  AddTlsOptions(command, connection.tls);
}

}  // namespace holdfast
