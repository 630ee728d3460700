#include "elastic/lease/open_lease.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elastic/lease/etcd_store.h"
#include "elastic/lease/s3_lease_store.h"
#include "elastic/lease/store_lease.h"
#include "framework/base/status.h"
#include "framework/net/socket_address.h"
#include "framework/s3/s3_environment.h"

namespace holdfast {
namespace {

constexpr absl::string_view kDefaultPort = "2379", kObject = "/leader";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Expected(const std::string& where) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--lease ", where, ": expected etcd://HOST[:PORT][,HOST...]/NAME, etcds://... (TLS) or s3://BUCKET/NAME"));
}

absl::StatusOr<std::unique_ptr<LeaseStore>> OpenEtcd(const std::string& where, absl::string_view rest, bool tls,
                                                     std::chrono::milliseconds timeout) {
  const size_t slash = rest.find('/');
  if (slash == absl::string_view::npos || slash + 1 == rest.size()) return Expected(where);
  EtcdOptions options{.endpoints = {}, .key = absl::StrCat(rest.substr(slash), kObject), .timeout = timeout};
  if (tls) {
    options.ca_file = Environment("ETCDCTL_CACERT");
    options.cert_file = Environment("ETCDCTL_CERT");
    options.key_file = Environment("ETCDCTL_KEY");
  }
  const std::string user = Environment("ETCDCTL_USER");
  const size_t colon = user.find(':');
  options.user = user.substr(0, colon);
  options.password = colon == std::string::npos ? Environment("ETCDCTL_PASSWORD") : user.substr(colon + 1);
  for (const absl::string_view part : absl::StrSplit(rest.substr(0, slash), ',', absl::SkipWhitespace())) {
    std::string address(part);
    if (!SplitHostAndPort(address).ok()) absl::StrAppend(&address, ":", kDefaultPort);
    const auto host = SplitHostAndPort(address);
    if (!host.ok()) return Expected(where);
    if (!tls && !options.user.empty() && !IsLoopbackHost(host->first)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--lease ", where, ": ETCDCTL_USER is set, and a password is not sent over an unprotected network: use ",
          "etcds://, or unset it"));
    }
    options.endpoints.push_back(absl::StrCat(tls ? "https://" : "http://", address));
  }
  if (options.endpoints.empty()) return Expected(where);
  return std::make_unique<EtcdStore>(std::move(options));
}

absl::StatusOr<std::unique_ptr<LeaseStore>> OpenS3(const std::string& where, absl::string_view rest,
                                                   std::chrono::milliseconds timeout, bool may_lead) {
  const size_t slash = rest.find('/');
  if (slash == 0 || slash == absl::string_view::npos || slash + 1 == rest.size()) return Expected(where);
  S3Options options;
  options.bucket = std::string(rest.substr(0, slash));
  options.prefix = absl::StrCat(absl::StripSuffix(rest.substr(slash + 1), "/"), kObject);
  options.request_timeout = timeout;
  options.retry_for = std::chrono::milliseconds(0);  // whoever asks asks again
  options.connections = 2;
  FillFromEnvironment(&options);
  return S3LeaseStore::Open(options, may_lead);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseStore>> OpenLeaseStore(const std::string& where, std::chrono::milliseconds timeout,
                                                           bool may_lead) {
  absl::string_view rest = where;
  if (absl::ConsumePrefix(&rest, "etcd://")) return OpenEtcd(where, rest, /*tls=*/false, timeout);
  if (absl::ConsumePrefix(&rest, "etcds://")) return OpenEtcd(where, rest, /*tls=*/true, timeout);
  if (absl::ConsumePrefix(&rest, "s3://")) return OpenS3(where, rest, timeout, may_lead);
  return Expected(where);
}

absl::StatusOr<std::string> FindLeader(LeaseStore& store) {
  ASSIGN_OR_RETURN(const LeaseStore::Entry entry, store.Read());
  ASSIGN_OR_RETURN(const LeaseSight lease, ReadLease(store, entry));
  const auto words = LeaderWords::Read(lease.text.words);
  const bool leads = words.has_value() && !words->exit_code.has_value() && !words->has_left;
  if (!leads || !SplitHostAndPort(lease.address).ok()) {
    return absl::NotFoundError(absl::StrCat("no coordinator leads the run of ", store.Describe()));
  }
  return lease.address;
}

}  // namespace holdfast
