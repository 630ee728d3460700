// Server and client over loopback: order, reconnecting, ending, status; and who is let in.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "elastic/wire/control_client.h"
#include "elastic/wire/control_server.h"
#include "elastic/wire/credentials.h"
#include "elastic/wire/grpc_link.h"
#include "framework/base/thread_limits.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/control_parts.h"
#include "tests/elastic/wire/random_messages.h"
#include "tests/framework/base/few_threads.h"
#include "tests/framework/net/test_ports.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::kTestTimeout;
using testing::RecordingClient;
using testing::RecordingServer;
using testing::StartClient;
using testing::StartServer;
using testing::Waiter;

TEST(ControlTest, MessagesArriveInOrderBothWays) {
  constexpr int kMessages = 3000;
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  handler.reply = [&](Connection from, const WorkerMessage& message) {
    server->Send(from, CommitMessage{1, std::get<HeartbeatMessage>(message).step, {}});
  };
  for (int i = 0; i < kMessages; ++i) client->Send(HeartbeatMessage{.step = i});
  ASSERT_TRUE(peer.Until([&] { return peer.messages.size() == kMessages; }));
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(std::get<HeartbeatMessage>(handler.messages[i].second).step, i);
    ASSERT_EQ(std::get<CommitMessage>(peer.messages[i]).step, i);
  }
}

TEST(ControlTest, EveryKindOfMessageCrossesTheWire) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  testing::RandomMessages random(3);
  std::vector<WorkerMessage> up;
  for (size_t kind = 0; kind < std::variant_size_v<WorkerMessage>; ++kind) up.push_back(random.Worker(kind));
  for (const WorkerMessage& message : up) client->Send(message);
  ASSERT_TRUE(handler.Until([&] { return handler.messages.size() == up.size(); }));
  for (size_t i = 0; i < up.size(); ++i) EXPECT_TRUE(testing::Equal(handler.messages[i].second, up[i])) << i;

  std::vector<CoordinatorMessage> down;
  for (size_t k = 0; k < std::variant_size_v<CoordinatorMessage>; ++k) down.push_back(random.FromCoordinator(k));
  for (const CoordinatorMessage& message : down) server->Send(handler.messages[0].first, message);
  ASSERT_TRUE(peer.Until([&] { return peer.messages.size() == down.size(); }));
  for (size_t i = 0; i < down.size(); ++i) EXPECT_TRUE(testing::Equal(peer.messages[i], down[i])) << i;
}

// Where one of them cannot be started gRPC waits for it for ever, so whether all can is looked at before.
TEST(ControlTest, GrpcStartsNoMoreThreadsThanAreLookedFor) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  const std::set<std::string> all = {"event_engine",    "nexting_thread",  "default-executo",
                                     "resolver-execut", "grpc_global_tim", "timer_manager"};
  std::set<std::string> seen;
  int count = 0;
  for (const auto end = std::chrono::steady_clock::now() + kTestTimeout; seen != all;) {  // a thread names itself
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "another gRPC, which starts others: count them anew";
    count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (!all.contains(name)) continue;
      seen.insert(name);
      ++count;
    }
  }
  EXPECT_LE(count, ThreadsOfGrpc());
  EXPECT_EQ(ThreadsOfGrpc(2), 16);
  EXPECT_EQ(ThreadsOfGrpc(256), 60) << "it started 52 at once";
}

/// gRPC may wait for ever.
void BecomeAUserWhoMayHaveOneThreadMore() {
  BecomeAUserWhoMayHaveThreads(2);
  alarm(static_cast<unsigned>(2 * kTestTimeout.count()));
}

// They may be taken by others between that look and gRPC's start. In a process of a user who may have one thread more.
TEST(ControlDeathTest, AClientWithoutThreadsForGrpcSaysSoAndEnds) {
  if (const char* why = WhyNoUserWithFewThreads()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    BecomeAUserWhoMayHaveOneThreadMore();
    RecordingClient handler;
    ControlClientOptions options{.address = "127.0.0.1:1"};
    options.connect_timeout = options.look_interval = options.grpc_patience = std::chrono::milliseconds(20);
    try {
      const auto client = ControlClient::Start(options, &handler);
      if (!client.ok() || !handler.Until([&] { return !handler.stuck.ok(); })) _exit(3);
      (*client)->Stop();
      std::fprintf(stderr, "%s\n", std::string(handler.stuck.message()).c_str());
    } catch (const std::system_error&) {  // gRPC, which goes on, was first
      std::fprintf(stderr, "gRPC does not answer: %s\n", NoThreadText());
    }
    _exit(0);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0),
              "gRPC does not answer: a thread cannot be started: look at limits");
}

// As of a server for whose own threads there is no room any more.
TEST(ControlDeathTest, GrpcWithoutThreadsIsNotWaitedForAsTheLastChannelGoes) {
  if (const char* why = WhyNoUserWithFewThreads()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    BecomeAUserWhoMayHaveOneThreadMore();
    KeepThreadsOfGrpc();
    grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials());
    _exit(0);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0), "");
}

TEST(ControlDeathTest, ALinkOrAServerWithoutThreadsForGrpcIsRefused) {
  if (const char* why = WhyNoUserWithFewThreads()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    BecomeAUserWhoMayHaveOneThreadMore();
    RecordingServer handler;
    ConnectionOptions connection;
    connection.coordinator = "127.0.0.1:1";
    ControlServerOptions options;
    options.address = "127.0.0.1:0";
    const absl::Status checked = ControlServer::Check(options);  // looks at addresses and files only
    const absl::Status link = MakeControlLink(connection).status();
    const absl::Status server = ControlServer::Start(options, &handler).status();
    std::fprintf(stderr, "%d, %s, %s\n", checked.ok(), std::string(link.message()).c_str(),
                 std::string(server.message()).c_str());
    _exit(0);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0), "1, a thread cannot be started: .*, a thread cannot be started: ");
}

TEST(ControlTest, ManyThreadsMaySend) {
  constexpr int kThreads = 4, kEach = 500;
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) client->Send(HeartbeatMessage{.generation = t, .step = i});
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(handler.Until([&] { return handler.messages.size() == kThreads * kEach; }));
  std::vector<int64_t> next(kThreads, 0);
  for (const auto& entry : handler.messages) {
    const auto& heartbeat = std::get<HeartbeatMessage>(entry.second);
    EXPECT_EQ(heartbeat.step, next[heartbeat.generation]++);
  }
}

TEST(ControlTest, CloseDeliversWhatWasSentBefore) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  handler.reply = [&](Connection from, const WorkerMessage&) {
    for (int i = 0; i < 100; ++i) server->Send(from, CommitMessage{1, i, {}});
    server->Send(from, RefusedMessage{"stale", true});
    server->Close(from);
  };
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  client->Send(FinishedMessage{1});
  ASSERT_TRUE(peer.Until([&] { return peer.disconnects.size() == 1; }));
  ASSERT_EQ(peer.messages.size(), 101u);
  EXPECT_EQ(std::get<RefusedMessage>(peer.messages.back()).reason, "stale");
  ASSERT_TRUE(handler.Until([&] { return handler.lost.size() == 1; }));
}

TEST(ControlTest, ShutdownDeliversTheLastWords) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  client->Send(FinishedMessage{1});
  ASSERT_TRUE(handler.Until([&] { return !handler.messages.empty(); }));
  server->Send(handler.messages[0].first, EndMessage{0, "done"});
  server->Shutdown(kTestTimeout);
  EXPECT_EQ(handler.lost.size(), 1u);
  ASSERT_TRUE(peer.Until([&] { return !peer.messages.empty(); }));
  EXPECT_EQ(std::get<EndMessage>(peer.messages[0]).reason, "done");
}

TEST(ControlTest, StopOfAClientDeliversWhatItSent) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer);
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  for (int i = 0; i < 200; ++i) client->Send(HeartbeatMessage{.step = i});
  client->Stop(kTestTimeout);
  ASSERT_TRUE(handler.Until([&] { return handler.lost.size() == 1; }));
  EXPECT_EQ(handler.messages.size(), 200u);
  EXPECT_EQ(peer.disconnects.size(), 1u);
}

TEST(ControlTest, ClientComesBackWhenTheServerDoes) {
  RecordingServer handler;
  const std::string address = "127.0.0.1:" + std::to_string(PortForLater());
  auto server = StartServer(&handler, {.address = address});
  ASSERT_NE(server, nullptr);
  RecordingClient peer;
  auto client = StartClient(address, &peer);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(peer.Until([&] { return peer.connected == round; })) << round;
    client->Send(FinishedMessage{static_cast<uint64_t>(round)});
    ASSERT_TRUE(handler.Until([&] { return handler.messages.size() == static_cast<size_t>(round); }));
    server = nullptr;
    ASSERT_TRUE(peer.Until([&] { return peer.disconnects.size() == static_cast<size_t>(round); }));
    EXPECT_FALSE(client->Send(FinishedMessage{99}));
    ASSERT_TRUE(peer.Until([&, before = peer.failures.size()] { return peer.failures.size() > before; }));
    server = StartServer(&handler, {.address = address});
    ASSERT_NE(server, nullptr);
  }
  for (const auto& entry : handler.messages) EXPECT_LE(std::get<FinishedMessage>(entry.second).generation, 3u);
}

TEST(ControlTest, ALinkWhoseCertificatesCannotBeReadIsNotMade) {
  const auto link = MakeControlLink({.coordinator = "127.0.0.1:1",
                                     .token_file = "",
                                     .tls = {.certificate = "/none", .key = "/none", .authority = "/none"}});
  ASSERT_FALSE(link.ok());
  EXPECT_NE(link.status().message().find("/none"), absl::string_view::npos) << link.status();
}

TEST(ControlTest, AMessageThatIsNotUnderstoodIsSaidOnce) {
  struct Joiner : ControlLinkHandler, Waiter {
    void OnConnected() override {
      JoinMessage join;
      for (int i = 0; i <= kMaxConfigKeys; ++i) join.digests.keys[absl::StrCat("key", i)] = 1;
      link->Send(join);
    }
    void OnMessage(const CoordinatorMessage& /*message*/) override {}
    void OnDisconnected(const std::string& /*reason*/) override {
      Do([&] { ++disconnected; });
    }
    ControlLink* link = nullptr;
    int disconnected = 0;
  };
  RecordingServer handler;
  auto server = StartServer(&handler);
  auto link = MakeControlLink({.coordinator = server->address(), .token_file = "", .tls = {}});
  ASSERT_TRUE(link.ok());
  Joiner joiner;
  joiner.link = link->get();
  ::testing::internal::CaptureStderr();
  (*link)->Start(joiner);
  EXPECT_TRUE(joiner.Until([&] { return joiner.disconnected >= 2; }));
  (*link)->Stop();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string line = "the coordinator and this process do not understand each other: ";
  EXPECT_THAT(said, HasSubstr(line));
  EXPECT_THAT(said, HasSubstr("Join.config_keys"));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
  EXPECT_TRUE(handler.messages.empty());
}

TEST(ControlTest, AttemptsAreSpacedOut) {
  RecordingClient peer;
  const auto begin = std::chrono::steady_clock::now();
  auto client = StartClient("127.0.0.1:1", &peer, {.first_backoff = 50ms, .max_backoff = 200ms});
  ASSERT_TRUE(peer.Until([&] { return peer.failures.size() >= 6; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, (50ms + 100ms + 200ms + 200ms + 200ms) * 7 / 10);  // each +-30%
  EXPECT_EQ(peer.connected, 0);
}

TEST(ControlTest, SecondServerOnTheSamePortSaysSo) {
  RecordingServer handler;
  auto server = StartServer(&handler);
  const auto second = ControlServer::Start({.address = server->address()}, &handler);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another coordinator"));
}

TEST(ControlTest, StatusIsFetched) {
  RecordingServer handler;
  handler.status = testing::RandomMessages(5).Status();
  auto server = StartServer(&handler);
  const auto status = testing::FetchStatusPatiently({.address = server->address()});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(testing::Equal(*status, handler.status));
}

TEST(ControlTest, StatusOfNobodyFailsSoon) {
  const auto begin = std::chrono::steady_clock::now();
  const auto status = FetchStatus({.address = "127.0.0.1:1", .connect_timeout = kTestTimeout});
  EXPECT_FALSE(status.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kTestTimeout);
}

}  // namespace
}  // namespace holdfast
