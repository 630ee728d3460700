#pragma once
// moto's S3 server, made stricter by verifying_server.py, on a free port of loopback.

#include <gtest/gtest.h>

#include <memory>

#include "framework/s3/s3_storage.h"
#include "tests/framework/s3/peer_process.h"

namespace holdfast {

class MotoServer {
 public:
  /// One for the whole program, started when it is first asked for; nullptr if the peers are not installed.
  static MotoServer* Shared();

  int port() const { return port_; }
  /// Of a user who may do everything.
  const S3Credentials& credentials() const { return credentials_; }
  /// For a new, empty bucket with a staging directory of its own, spoken to directly.
  S3Options NewBucket();

 private:
  MotoServer() = default;
  void MakeUser();

  std::unique_ptr<PeerProcess> process_;
  int port_ = 0, buckets_ = 0;
  S3Credentials credentials_;
};

#define HOLDFAST_MOTO_OR_SKIP(server)                                \
  ::holdfast::MotoServer* server = ::holdfast::MotoServer::Shared(); \
  if (server == nullptr) GTEST_SKIP() << "no S3 server to test with: run tools/test_peers.sh"

/// For what returns something.
inline void SkipWithoutServer() { HOLDFAST_MOTO_OR_SKIP(server); }

}  // namespace holdfast
