// Who is let in: addresses that may be bound, token files, tokens, certificates. Who is not never reaches the handler.

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elastic/wire/address.h"
#include "elastic/wire/control_server.h"
#include "elastic/wire/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/control_parts.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/net/test_ports.h"
#include "tests/paths.h"

namespace {
std::atomic<int> synced_directories{0};
}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's has a reserved name
extern "C" int fsync(int fd) {
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) ++synced_directories;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;
using testing::FetchStatusPatiently;
using testing::kTestTimeout;
using testing::RecordingClient;
using testing::RecordingServer;
using testing::StartClient;
using testing::StartServer;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// --- addresses -------------------------------------------------------------------------------------------------------

TEST(AddressTest, KnowsLoopback) {
  for (const char* address : {"127.0.0.1:5", "localhost:5", "127.8.9.1:5", "[::1]:5"}) {
    const auto resolved = ResolveListenAddress(address);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_TRUE(resolved->loopback) << address;
    EXPECT_EQ(resolved->port, 5);
  }
  for (const char* address : {"0.0.0.0:5", "[::]:5", "10.1.2.3:5"}) {
    const auto resolved = ResolveListenAddress(address);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_FALSE(resolved->loopback) << address;
  }
}

TEST(AddressTest, DefaultPort) {
  EXPECT_EQ(WithDefaultPort("node7"), "node7:29400");
  EXPECT_EQ(WithDefaultPort("node7:1"), "node7:1");
  EXPECT_EQ(WithDefaultPort("::1"), "[::1]:29400");
  EXPECT_EQ(WithDefaultPort("[::1]"), "[::1]:29400");
  EXPECT_EQ(WithDefaultPort("[::1]:1"), "[::1]:1");
}

TEST(AddressTest, NonsenseIsRefused) {
  for (const char* address :
       {"", ":", ":5", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "[::1:5"}) {
    EXPECT_EQ(ResolveListenAddress(address).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST(AddressTest, AllAddressesAreThoseOfBothFamilies) {
  const auto listener = ListenAt({.host = "0.0.0.0", .port = 0, .loopback = false});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const int port = PortOf(listener->address);
  for (const char* host : {"127.0.0.1", "::1"}) {
    const SocketAddress there = *ResolveHost(host, port);
    if (there.family() == AF_INET6 && !HasIpv6Loopback()) continue;
    const FileDescriptor socket = OpenSocket(there.family(), SOCK_STREAM, 0);
    EXPECT_EQ(connect(socket.get(), there.get(), there.size), 0) << host;
  }
  const auto second = ListenAt({.host = "127.0.0.1", .port = port, .loopback = true});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  EXPECT_THAT(Message(second.status()), HasSubstr("is another coordinator running?"));
}

TEST(AccessTest, BeyondLoopbackOnlyWithASecret) {
  RecordingServer handler;
  const auto open = ControlServer::Start({.address = "0.0.0.0:0"}, &handler);
  ASSERT_EQ(open.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(open.status()), HasSubstr("without a token"));
  EXPECT_TRUE(ControlServer::Start({.address = "0.0.0.0:0", .token = "secret"}, &handler).ok());
}

// --- token files -----------------------------------------------------------------------------------------------------

class TokenFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& contents, mode_t mode) {
    const std::string path = directory_ + "/token";
    std::ofstream(path, std::ios::binary) << contents;
    chmod(path.c_str(), mode);
    return path;
  }
  const TemporaryDirectory root_;
  const std::string directory_ = root_.path();
};

TEST_F(TokenFileTest, IsReadWithoutSpaceAround) {
  for (const mode_t mode : {0600, 0400}) {
    const auto token = ReadTokenFile(Write("s3cret\n", mode));
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_EQ(*token, "s3cret");
    std::filesystem::remove(directory_ + "/token");
  }
}

TEST_F(TokenFileTest, IsReadAgainByWhoWasRefused) {
  RecordingServer handler;
  const auto server = StartServer(&handler, {.token = "new"});
  ASSERT_NE(server, nullptr);
  const std::string file = Write("old\n", 0600);
  const ControlClientOptions options{.address = server->address(), .token = "old", .token_file = file};
  RecordingClient client;
  const auto link = StartClient(server->address(), &client, options);
  EXPECT_TRUE(
      client.Until([&] { return !client.failures.empty() && absl::IsUnauthenticated(client.failures.front()); }));
  EXPECT_TRUE(absl::IsUnauthenticated(FetchStatusPatiently(options).status()));
  Write("new\n", 0600);
  EXPECT_TRUE(client.Until([&] { return client.connected > 0; }));
  EXPECT_TRUE(FetchStatusPatiently(options).ok());
}

TEST_F(TokenFileTest, MustBePrivate) {
  for (const mode_t mode : {0644, 0640, 0620, 0601, 0604}) {
    const auto token = ReadTokenFile(Write("s3cret\n", mode));
    ASSERT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(Message(token.status()), HasSubstr("chmod 600"));
    EXPECT_THAT(Message(token.status()), Not(HasSubstr("s3cret")));
  }
}

TEST_F(TokenFileTest, MustHoldAToken) {
  EXPECT_EQ(*ReadTokenFile(Write(std::string(kMaxTokenBytes, 'x'), 0600)), std::string(kMaxTokenBytes, 'x'));
  for (const std::string& contents :
       {std::string(), std::string(" \n"), std::string(kMaxTokenBytes + 1, 'x'), std::string("two words"),
        std::string("two\nlines"), std::string("nul\0", 4), std::string("\xC3\xA9")}) {
    EXPECT_EQ(ReadTokenFile(Write(contents, 0600)).status().code(), absl::StatusCode::kInvalidArgument) << contents;
  }
  EXPECT_EQ(ReadTokenFile(directory_ + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTokenFile(directory_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenFileTest, IsMadeOnceAndPrivate) {
  const std::string path = directory_ + "/made";
  const int synced = synced_directories;
  const auto made = MakeTokenFile(path);
  EXPECT_GT(synced_directories, synced) << "agents have it: after a loss of power the next coordinator needs it";
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->size(), 64u);
  EXPECT_EQ(*ReadTokenFile(path), *made) << "it is private";
  EXPECT_EQ(*MakeTokenFile(path), *made) << "the one that is there stays";
  EXPECT_NE(*MakeTokenFile(directory_ + "/other"), *made);
  EXPECT_EQ(MakeTokenFile(directory_ + "/none/token").status().code(), absl::StatusCode::kNotFound);
}

// As a process leaves it that was killed, or found the disk full, while it made one.
TEST_F(TokenFileTest, IsMadeInThePlaceOfAnEmptyOne) {
  const std::string path = Write("", 0600);
  const auto made = MakeTokenFile(path);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*ReadTokenFile(path), *made);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
  EXPECT_EQ(MakeTokenFile(Write("two words", 0600)).status().code(), absl::StatusCode::kInvalidArgument)
      << "what somebody wrote is not replaced";
  EXPECT_EQ(MakeTokenFile(directory_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenFileTest, OfRootMayBeReadByAGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make such a file";
  const auto token = ReadTokenFile(Write("s3cret\n", 0440));
  ASSERT_TRUE(token.ok()) << token.status();
  ASSERT_EQ(chown((directory_ + "/token").c_str(), 12345, 12345), 0);
  EXPECT_EQ(ReadTokenFile(directory_ + "/token").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(TokenTest, OnlyTheTokenIsEqual) {
  EXPECT_TRUE(TokensEqual("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "xbc", "abcabc", "ABC"}) EXPECT_FALSE(TokensEqual(other, "abc"));
  EXPECT_FALSE(TokensEqual("", ""));
}

// --- tokens over the wire --------------------------------------------------------------------------------------------

TEST(AccessTest, TheRightTokenIsLetIn) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.token = "right"});
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer, {.token = "right"});
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  EXPECT_TRUE(FetchStatusPatiently({.address = server->address(), .token = "right"}).ok());
}

TEST(AccessTest, WrongAndMissingTokensAreNotHeard) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.token = "right"});
  ::testing::internal::CaptureStderr();
  for (const char* token : {"wrong", "", "righ", "rightt"}) {
    RecordingClient peer;
    auto client = StartClient(server->address(), &peer, {.token = token});
    ASSERT_TRUE(peer.Until([&] { return peer.failures.size() >= 2; })) << token;
    client->Send(FinishedMessage{1});
    client->Stop();
    EXPECT_EQ(peer.failures[0].code(), absl::StatusCode::kUnauthenticated) << peer.failures[0];
    EXPECT_THAT(Message(peer.failures[0]), Not(HasSubstr("right")));
    EXPECT_EQ(peer.connected, 0);
    const auto status = FetchStatusPatiently({.address = server->address(), .token = token});
    EXPECT_EQ(status.status().code(), absl::StatusCode::kUnauthenticated);
  }
  server->Shutdown(0ms);
  EXPECT_TRUE(handler.messages.empty());
  EXPECT_TRUE(handler.lost.empty());
  EXPECT_EQ(handler.status_calls, 0);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("refused ipv4:127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr(": the token differs from the coordinator's"));
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 8) << "a line for each attempt: " << log;
}

// --- mutual TLS ------------------------------------------------------------------------------------------------------

TlsFiles Files(const std::string& name) {
  const std::string directory = SourceDir() + "/tests/elastic/wire/certs/";
  return {directory + name + ".pem", directory + name + ".key", directory + "authority.pem"};
}

TEST(AccessTest, CertificatesOfTheAuthorityAreLetIn) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.tls = Files("node")});
  RecordingClient peer;
  auto client = StartClient(server->address(), &peer, {.tls = Files("node")});
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  client->Send(FinishedMessage{1});
  ASSERT_TRUE(handler.Until([&] { return handler.messages.size() == 1; }));
  EXPECT_TRUE(FetchStatusPatiently({.address = server->address(), .tls = Files("node")}).ok());
}

TEST(AccessTest, StrangersAndPlainTextAreNotHeard) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.tls = Files("node")});
  for (const TlsFiles& files : {Files("stranger"), TlsFiles()}) {
    RecordingClient peer;
    auto client = StartClient(server->address(), &peer, {.tls = files});
    ASSERT_TRUE(peer.Until([&] { return !peer.failures.empty(); }));
    EXPECT_EQ(peer.connected, 0);
    const std::string advice =
        absl::StrCat("it ends, may open no more files (`ulimit -n`), or ",
                     files.enabled() ? "refuses this certificate" : "asks for TLS (--tls-certificate");
    std::string said;
    const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
    while (!absl::StrContains(said, advice) && std::chrono::steady_clock::now() < deadline) {  // it may be reset, too
      const auto status = FetchStatusPatiently({.address = server->address(), .tls = files});
      ASSERT_FALSE(status.ok());
      said = Message(status.status());
    }
    EXPECT_THAT(said, HasSubstr(advice));
  }
  EXPECT_EQ(handler.status_calls, 0);
}

TEST(AccessTest, ARefusedCertificateIsLoggedWithItsAddress) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.tls = Files("node")});
  std::string log;
  const auto is_logged = [&] { return log.find(": it ended before a call of it was let in") != std::string::npos; };
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (!is_logged() && std::chrono::steady_clock::now() < deadline) {
    ::testing::internal::CaptureStderr();
    const auto status = FetchStatusPatiently({.address = server->address(), .tls = Files("stranger")});
    EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable) << status.status();
    log += ::testing::internal::GetCapturedStderr();
  }
  EXPECT_THAT(log, HasSubstr("let go of 127.0.0.1:"));
  EXPECT_TRUE(is_logged()) << log;
}

TEST(AccessTest, ClientsRefuseAStrangersServer) {
  RecordingServer handler;
  auto server = StartServer(&handler, {.tls = Files("stranger")});
  const auto status = FetchStatusPatiently({.address = server->address(), .tls = Files("node")});
  EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable) << status.status();
  EXPECT_EQ(handler.status_calls, 0);
}

// The lines of elastic/wire/README.md, for this machine's address.
TEST(AccessTest, CertificatesAreMadeAsTheReadmeSays) {
  if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs openssl's command";
  std::ifstream readme(SourceDir() + "/elastic/wire/README.md");
  std::stringstream text;
  text << readme.rdbuf();
  const size_t section = text.str().find("## Certificates\n```\n");
  ASSERT_NE(section, std::string::npos);
  const size_t begin = text.str().find("```\n", section) + 4;
  std::string lines = text.str().substr(begin, text.str().find("```", begin) - begin);
  lines = absl::StrReplaceAll(lines, {{"10.0.0.1", "127.0.0.1"}});
  const TemporaryDirectory root;
  const std::string& directory = root.path();
  std::ofstream(directory + "/make.sh") << lines;
  ASSERT_EQ(std::system(("cd " + directory + " && sh -e make.sh >log 2>&1").c_str()), 0) << lines;
  const TlsFiles made{directory + "/node1.pem", directory + "/node1.key", directory + "/authority.pem"};
  RecordingServer handler;
  auto server = StartServer(&handler, {.tls = made});
  ASSERT_NE(server, nullptr);
  const auto status = FetchStatusPatiently({.address = server->address(), .tls = made});
  EXPECT_TRUE(status.ok()) << status.status();
  const auto of_another_authority = FetchStatusPatiently({.address = server->address(), .tls = Files("node")});
  EXPECT_EQ(of_another_authority.status().code(), absl::StatusCode::kUnavailable) << of_another_authority.status();
}

TEST(AccessTest, HalfOfTheTlsFilesIsAnError) {
  RecordingServer handler;
  TlsFiles files = Files("node");
  files.authority.clear();
  EXPECT_EQ(ControlServer::Start({.address = "127.0.0.1:0", .tls = files}, &handler).status().code(),
            absl::StatusCode::kInvalidArgument);
  files = Files("missing");
  RecordingClient peer;
  EXPECT_EQ(ControlClient::Start({.tls = files}, &peer).status().code(), absl::StatusCode::kNotFound);
}

// gRPC would listen with them, and let nobody in.
TEST(AccessTest, TlsFilesThatCannotWorkAreAnErrorAtOnce) {
  const TlsFiles node = Files("node"), stranger = Files("stranger");
  const std::pair<TlsFiles, std::string> kinds[] = {
      {{node.certificate, stranger.key, node.authority}, stranger.key + ": is not the key of the certificate in "},
      {{node.key, node.key, node.authority}, node.key + ": holds no certificate"},
      {{node.certificate, node.certificate, node.authority}, node.certificate + ": holds no private key"},
      {{node.certificate, node.key, node.key}, node.key + ": holds no certificate"}};
  for (const auto& [files, says] : kinds) {
    RecordingClient peer;
    for (const absl::Status& status : {ControlServer::Check({.address = "127.0.0.1:0", .tls = files}),
                                       ControlClient::Start({.tls = files}, &peer).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
      EXPECT_THAT(Message(status), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace holdfast
