// Peers that mean harm or are broken: garbage on the port, idle connections, oversized and malformed messages, silence,
// reading nothing. Each is refused, and a healthy session beside it goes on.

#include <arpa/inet.h>
#include <grpc/support/log.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "elastic/wire/control_server.h"
#include "framework/base/log.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/control_parts.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;
using testing::kTestTimeout;
using testing::RecordingClient;
using testing::RecordingServer;
using testing::StartClient;
using testing::StartServer;

constexpr int kIdleConnections = 1000;

/// A TCP connection to the server.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) const { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// True if the server ends the connection in time.
  bool WaitForEnd() const {
    const timeval limit{kTestTimeout.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return true;
      if (got < 0) return false;
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

/// A stream that sends bytes of our choice, one blocking call at a time.
class RawStream {
 public:
  explicit RawStream(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    call_ = stub_.PrepareCall(&context_, "/holdfast.v1.Control/Session", &queue_);
    call_->StartCall(this);
    Next();
  }
  ~RawStream() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), this);
    Next();
  }
  grpc::Status End() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }

 private:
  void Next() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

/// A server with one healthy session, which has to be alive at the end of each test.
class HostileTest : public ::testing::Test {
 protected:
  void Begin(ControlServerOptions options = {}) { ASSERT_TRUE(TryToBegin(options)); }
  /// With this limit for strangers, or a longer one if the healthy one was slower itself.
  void Begin(std::chrono::milliseconds ControlServerOptions::*limit, std::chrono::milliseconds value) {
    ControlServerOptions options;
    for (options.*limit = value; !TryToBegin(options); options.*limit *= 2) {
      ASSERT_LT(options.*limit, kTestTimeout / 4) << "whoever speaks is cut, too";
    }
  }
  /// False, and nothing has begun, if the healthy one was cut itself: a busy machine may not let it speak in time.
  bool TryToBegin(ControlServerOptions options) {
    server_ = StartServer(&handler_, options);
    healthy_ = StartClient(server_->address(), &peer_);
    EXPECT_TRUE(peer_.Until([&] { return peer_.connected > 0; }));
    healthy_->Send(FinishedMessage{1});
    bool was_cut = false;
    const auto is_decided = [&] { return was_cut || handler_.messages.size() == 1; };
    for (const auto end = std::chrono::steady_clock::now() + kTestTimeout;
         !handler_.Until(is_decided, 10ms) && std::chrono::steady_clock::now() < end;) {
      was_cut = peer_.Until([&] { return !peer_.disconnects.empty(); }, 0ms);
    }
    if (!was_cut) return handler_.Until([&] { return handler_.messages.size() == 1; }, 0ms);
    healthy_ = nullptr;
    server_ = nullptr;
    peer_.connected = 0;
    peer_.disconnects.clear();
    handler_.messages.clear();
    handler_.lost.clear();
    return false;
  }
  void TearDown() override {
    const size_t before = handler_.messages.size();
    healthy_->Send(FinishedMessage{2});
    EXPECT_TRUE(handler_.Until([&] { return handler_.messages.size() > before; }));
    EXPECT_TRUE(peer_.disconnects.empty());
  }

  RecordingServer handler_;
  std::unique_ptr<ControlServer> server_;
  RecordingClient peer_;
  std::unique_ptr<ControlClient> healthy_;
};

// gRPC has a line for each stranger that resets its connection.
TEST_F(HostileTest, WhatGrpcLogsByItselfIsForDebugging) {
  Begin();
  const auto logged = [] {
    ::testing::internal::CaptureStderr();
    gpr_log(GPR_ERROR, "the peer has no name");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(logged(), Not(HasSubstr("the peer has no name")));
  ASSERT_TRUE(SetLogLevel("debug").ok());
  EXPECT_THAT(logged(), HasSubstr(" debug: gRPC: the peer has no name\n"));
  ASSERT_TRUE(SetLogLevel("info").ok());
}

TEST_F(HostileTest, GarbageEndsTheConnection) {
  Begin(&ControlServerOptions::handshake_timeout,
        4000ms);  // with what may be the beginning of something it ends only then
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(1 + random() % 100'000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 3 == 1) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes;
    if (round % 3 == 2) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes;
    const RawConnection connection(server_->address());
    ASSERT_TRUE(connection.connected());
    connection.Send(bytes);
    EXPECT_TRUE(connection.WaitForEnd()) << round;
  }
  EXPECT_EQ(handler_.messages.size(), 1u);
}

TEST_F(HostileTest, IdleConnectionsHarmNobodyAndAreDropped) {
  Begin(&ControlServerOptions::handshake_timeout, 1000ms);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < kIdleConnections; ++i) {
    idle.push_back(std::make_unique<RawConnection>(server_->address()));
    ASSERT_TRUE(idle.back()->connected()) << i << ": is the limit on open files too low?";
  }
  RecordingClient late;
  auto client = StartClient(server_->address(), &late);
  ASSERT_TRUE(late.Until([&] { return late.connected == 1; }));
  // On a busy machine our own handshake may be too slow, too.
  bool fetched = false;
  for (const auto end = std::chrono::steady_clock::now() + kTestTimeout; !fetched;) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    fetched = FetchStatus({.address = server_->address()}).ok();
  }
  int ended = 0;
  for (const auto& connection : idle) ended += connection->WaitForEnd() ? 1 : 0;
  EXPECT_EQ(ended, kIdleConnections);
}

TEST_F(HostileTest, OversizedMessageEndsTheStream) {
  Begin();
  RawStream stream(server_->address());
  stream.Send(std::string(kMaxIncomingBytes + 1, 'x'));
  const grpc::Status status = stream.End();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(handler_.messages.size(), 1u);
}

TEST_F(HostileTest, BytesThatAreNoMessageEndTheStream) {
  Begin();
  for (const std::string& bytes : {std::string("\xFF\xFF\xFF\xFF"), std::string(), std::string(10'000, '\x08')}) {
    RawStream stream(server_->address());
    stream.Send(bytes);
    stream.End();
  }
  EXPECT_EQ(handler_.messages.size(), 1u);
}

TEST_F(HostileTest, MessageOutOfBoundsEndsTheStreamWithItsName) {
  Begin();
  RawStream stream(server_->address());
  stream.Send(std::string("\x12\x02\x18\x63", 4));  // heartbeat { phase: 99 }
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("Heartbeat.phase: unknown value 99"));
  EXPECT_EQ(handler_.messages.size(), 1u);
}

TEST_F(HostileTest, WhoIsSilentAtTheStartIsCut) {
  constexpr std::chrono::milliseconds kLimit = 2000ms;
  Begin(&ControlServerOptions::first_message_timeout, kLimit);
  RecordingClient silent;
  const auto begin = std::chrono::steady_clock::now();
  auto client = StartClient(server_->address(), &silent);
  ASSERT_TRUE(silent.Until([&] { return !silent.disconnects.empty(); }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLimit);
  EXPECT_THAT(silent.disconnects[0], HasSubstr("no message came"));
  EXPECT_TRUE(handler_.lost.empty());
}

TEST_F(HostileTest, MoreSessionsThanAllowedAreRefused) {
  Begin({.max_streams = 2});
  RecordingClient second, third;
  auto client = StartClient(server_->address(), &second);
  ASSERT_TRUE(second.Until([&] { return second.connected == 1; }));
  auto refused = StartClient(server_->address(), &third);
  ASSERT_TRUE(third.Until([&] { return !third.failures.empty(); }));
  EXPECT_EQ(third.failures[0].code(), absl::StatusCode::kResourceExhausted);
}

// The reader is blocked inside its handler, so its stream fills up: socket buffers, flow control, then our queue.
TEST_F(HostileTest, WhoDoesNotReadIsCut) {
  struct Blocked : RecordingClient {
    void OnMessage(CoordinatorMessage /*message*/) override {
      while (!released) std::this_thread::sleep_for(1ms);
    }
    std::atomic<bool> released{false};
  };
  Begin({.max_queued_bytes = size_t{1} << 20});
  Blocked blocked;
  auto client = StartClient(server_->address(), &blocked);
  ASSERT_TRUE(blocked.Until([&] { return blocked.connected == 1; }));
  client->Send(FinishedMessage{1});
  ASSERT_TRUE(handler_.Until([&] { return handler_.messages.size() == 2; }));
  const Connection connection = handler_.messages[1].first;
  const RefusedMessage message{std::string(4000, 'r'), true};
  for (int i = 0; i < 20'000 && handler_.lost.empty(); ++i) server_->Send(connection, message);
  ASSERT_TRUE(handler_.Until([&] { return handler_.lost.size() == 1; }));
  EXPECT_THAT(handler_.lost[0].second, HasSubstr("does not read"));
  blocked.released = true;
  client->Stop();
}

}  // namespace
}  // namespace holdfast
