#pragma once
// A real etcd on loopback (Debian's package etcd-server), which a test may kill and start again with what it has
// stored.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/framework/s3/peer_process.h"

namespace holdfast {

class EtcdServer {
 public:
  /// nullptr if there is no etcd on this machine.
  static std::unique_ptr<EtcdServer> Start(bool tls = false);
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  /// Of tests/elastic/wire/certs. With TLS a server shows `node` and asks for one that `authority` signed.
  static std::string Certificate(const std::string& name);

  /// "127.0.0.1:41234"
  const std::string& address() const { return address_; }
  /// SIGSTOP or SIGCONT.
  void Signal(int signal) const;
  void Kill() { process_.reset(); }
  /// After Kill: at the same address, and returns when it answers.
  void StartAgain();
  /// The answer to a call of its gateway, "" if there is none.
  std::string Call(const std::string& path, const std::string& body, const std::string& token = "") const;

 private:
  explicit EtcdServer(bool tls) : tls_(tls) {}
  std::string Url(int port) const;
  bool StartAt(int client_port, int peer_port);

  const bool tls_;
  std::string folder_, address_;
  int client_port_ = 0, peer_port_ = 0;
  std::unique_ptr<PeerProcess> process_;
};

#define HOLDFAST_ETCD_OR_SKIP(server)                                                     \
  const std::unique_ptr<::holdfast::EtcdServer> server = ::holdfast::EtcdServer::Start(); \
  if (server == nullptr) GTEST_SKIP() << "etcd is not installed: run tools/setup.sh --with-test"

}  // namespace holdfast
