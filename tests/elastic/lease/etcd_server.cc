#include "tests/elastic/lease/etcd_server.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "framework/http/http_connection.h"
#include "tests/framework/net/test_ports.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr const char* kBinary = "/usr/bin/etcd";

}  // namespace

std::string EtcdServer::Certificate(const std::string& name) {
  return SourceDir() + "/tests/elastic/wire/certs/" + name;
}

std::string EtcdServer::Url(int port) const {
  return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port);
}

std::unique_ptr<EtcdServer> EtcdServer::Start(bool tls) {
  if (!std::filesystem::exists(kBinary)) return nullptr;
  std::unique_ptr<EtcdServer> server(new EtcdServer(tls));
  server->folder_ = (std::filesystem::temp_directory_path() / "holdfast-etcd-XXXXXX").string();
  if (mkdtemp(server->folder_.data()) == nullptr) std::abort();
  // Another one that is started now may have chosen the same port.
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (server->StartAt(PortForLater(), PortForLater())) return server;
    std::filesystem::remove_all(server->folder_ + "/data");
  }
  std::fprintf(stderr, "etcd does not start\n");
  std::abort();
}

bool EtcdServer::StartAt(int client_port, int peer_port) {
  client_port_ = client_port;
  peer_port_ = peer_port;
  address_ = "127.0.0.1:" + std::to_string(client_port);
  std::vector<std::string> words{kBinary,
                                 "--name=test",
                                 "--data-dir=" + folder_ + "/data",
                                 "--listen-client-urls=" + Url(client_port),
                                 "--advertise-client-urls=" + Url(client_port),
                                 "--listen-peer-urls=" + Url(peer_port),
                                 "--initial-advertise-peer-urls=" + Url(peer_port),
                                 "--initial-cluster=test=" + Url(peer_port),
                                 "--logger=zap",
                                 "--log-level=warn"};
  if (tls_) {
    for (const char* side : {"", "peer-"}) {
      const std::string option = std::string("--") + side;
      words.insert(words.end(),
                   {option + "cert-file=" + Certificate("node.pem"), option + "key-file=" + Certificate("node.key"),
                    option + "trusted-ca-file=" + Certificate("authority.pem"), option + "client-cert-auth"});
    }
  }
  process_ = PeerProcess::StartProgram(words);
  for (int i = 0; i < 12'000 && process_->IsRunning(); ++i) {
    const std::string answer = Call("/v3/kv/range", R"({"key":"YQ=="})");
    const bool asks_who = answer.find("user name is empty") != std::string::npos;
    if (asks_who || answer.find("header") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

EtcdServer::~EtcdServer() {
  process_.reset();
  std::filesystem::remove_all(folder_);
}

void EtcdServer::Signal(int signal) const { kill(process_->pid(), signal); }

void EtcdServer::StartAgain() { EXPECT_TRUE(StartAt(client_port_, peer_port_)) << "etcd does not come back"; }

std::string EtcdServer::Call(const std::string& path, const std::string& body, const std::string& token) const {
  const std::unique_ptr<HttpConnection> connection = *HttpConnection::Create();
  const MemoryBody bytes(body);
  HttpRequest request;
  request.method = "POST";
  request.url = Url(client_port_) + path;
  if (tls_) {
    request.ca_file = Certificate("authority.pem");
    request.cert_file = Certificate("node.pem");
    request.key_file = Certificate("node.key");
  }
  request.body = &bytes;
  request.direct = true;
  if (!token.empty()) request.headers.emplace_back("authorization", token);
  const absl::StatusOr<HttpAnswer> answer = connection->Perform(request);
  return answer.ok() ? answer->body : "";
}

}  // namespace holdfast
