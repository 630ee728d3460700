#pragma once
// A key of etcd (3.4 and later), by the JSON gateway of its version 3 API.

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/lease/lease_store.h"
#include "framework/http/connection_pool.h"

namespace holdfast {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // "http://db1:2379": members of one cluster, of which any will do
  std::string key;
  std::string ca_file{};                // PEM; empty = the system's
  std::string cert_file{}, key_file{};  // PEM, for a server that asks for them
  std::string user{}, password{};
  std::chrono::milliseconds timeout{2000};  // of one call, over all endpoints
};

/// Reads and writes are linearizable; a write is a transaction that looks at the key's mod_revision. One endpoint that
/// does not answer costs half of the timeout, once. Thread-safe.
class EtcdStore final : public LeaseStore {
 public:
  explicit EtcdStore(EtcdOptions options) : options_(std::move(options)) {}
  absl::StatusOr<Entry> Read() override;
  absl::StatusOr<std::string> Replace(const std::string& version, absl::string_view text) override;
  std::string Describe() const override;

 private:
  /// The body of the answer to one call; signs in where the server asks for it.
  absl::StatusOr<std::string> Call(const std::string& path, const std::string& body);
  absl::StatusOr<std::string> CallAny(const std::string& path, const std::string& body, const std::string& token);
  absl::StatusOr<std::string> SignIn();
  std::string Describe(const std::string& endpoint) const;

  const EtcdOptions options_;
  ConnectionPool pool_{2};
  std::mutex mutex_;
  std::string token_;  // under mutex_
  size_t first_ = 0;   // under mutex_: the endpoint that answered last
};

}  // namespace holdfast
