#pragma once
// The lease that a command is told to use (--lease).

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/lease/lease_store.h"

namespace holdfast {

/// Of
///   etcd://HOST[:PORT][,HOST[:PORT]...]/NAME    port 2379; user and password: ETCDCTL_USER ("name:password", or with
///                                               ETCDCTL_PASSWORD), over loopback or TLS only
///   etcds://...                                 over TLS; ETCDCTL_CACERT names the authority's certificate,
///                                               ETCDCTL_CERT and ETCDCTL_KEY one of this process and its key
///   s3://BUCKET/NAME                            as FillFromEnvironment (framework/s3) finds endpoint and credentials
/// `timeout`: of one call. `may_lead`: the store is asked whether it can do what a lease needs. InvalidArgument,
/// saying what is expected, for anything else; other errors: of a store that is asked.
absl::StatusOr<std::unique_ptr<LeaseStore>> OpenLeaseStore(const std::string& where, std::chrono::milliseconds timeout,
                                                           bool may_lead);

/// Where the one that leads listens; NotFound if nobody says so.
absl::StatusOr<std::string> FindLeader(LeaseStore& store);

}  // namespace holdfast
