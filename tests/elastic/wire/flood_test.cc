// Peers without the token take no memory worth mentioning: many streams that announce large messages, headers without
// an end, many connections. The bound is on what the whole process grows by.

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <vector>

#include "elastic/wire/control_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/control_parts.h"
#include "tests/elastic/wire/http2_peer.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::Http2Peer;
using testing::RecordingClient;
using testing::RecordingServer;
using testing::StartClient;
using testing::StartServer;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr uint32_t kLargeMessage = uint32_t{20} << 20;  // a coordinator takes 24 MiB
constexpr int kStreams = 16;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

int64_t ResidentBytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * getpagesize();
}

/// A server with a token and a worker that has it, which is let in and stays.
class FloodTest : public ::testing::Test {
 protected:
  void Begin(ControlServerOptions options = {}) {
    options.token = "right";
    server_ = StartServer(&handler_, options);
    healthy_ = StartClient(server_->address(), &peer_, {.token = "right"});
    ASSERT_TRUE(peer_.Until([&] { return peer_.connected == 1; }));
    healthy_->Send(FinishedMessage{1});
    ASSERT_TRUE(handler_.Until([&] { return handler_.messages.size() == 1; }));
    before_ = ResidentBytes();
  }
  int64_t GrownMiB() const { return kKeepsFreedMemory ? 0 : (ResidentBytes() - before_) / kMiB; }
  void TearDown() override {
    healthy_->Send(FinishedMessage{2});
    EXPECT_TRUE(handler_.Until([&] { return handler_.messages.size() == 2; }));
    EXPECT_TRUE(peer_.disconnects.empty());
    EXPECT_EQ(handler_.status_calls, 0);
  }

  RecordingServer handler_;
  std::unique_ptr<ControlServer> server_;
  RecordingClient peer_;
  std::unique_ptr<ControlClient> healthy_;
  int64_t before_ = 0;
};

const Http2Peer::Headers kNoToken, kWrongToken = {{"authorization", "Bearer wrong"}};

// What a call brings is not waited for before it is known whose it is.
TEST_F(FloodTest, StrangersAreRefusedBeforeTheirMessage) {
  Begin();
  for (const char* path : {"/holdfast.v1.Control/Status", "/holdfast.v1.Control/Session", "/any/Thing"}) {
    for (const Http2Peer::Headers& headers : {kNoToken, kWrongToken}) {
      Http2Peer stranger(server_->address());
      stranger.OpenStream(path, kLargeMessage, headers);
      while (stranger.open() && stranger.refused() == 0 && stranger.Read()) {
      }
      EXPECT_EQ(stranger.refused(), 1) << path;
    }
  }
}

TEST_F(FloodTest, LargeMessagesOnManyStreams) {
  Begin();
  for (const char* path : {"/holdfast.v1.Control/Status", "/holdfast.v1.Control/Session", "/any/Thing"}) {
    for (const Http2Peer::Headers& headers : {kNoToken, kWrongToken}) {
      Http2Peer stranger(server_->address());
      while (stranger.open() && stranger.sent() < 200 * kMiB) {
        while (stranger.streams() < kStreams) stranger.OpenStream(path, kLargeMessage, headers);
        if (!stranger.SendAll()) stranger.Read();
      }
      EXPECT_LT(GrownMiB(), 16) << path << ": after " << stranger.sent() / kMiB << " MiB";
      EXPECT_FALSE(stranger.open()) << path;
    }
  }
}

// Which gRPC alone keeps until they end.
TEST_F(FloodTest, HeadersWithoutEnd) {
  Begin();
  Http2Peer stranger(server_->address());
  stranger.WriteHeaders(100 * kMiB);
  EXPECT_LT(GrownMiB(), 16);
  EXPECT_FALSE(stranger.open());
}

TEST_F(FloodTest, ManyConnectionsWithManyStreams) {
  Begin({.max_strangers = 300});
  std::vector<std::unique_ptr<Http2Peer>> strangers;
  for (int i = 0; i < 600; ++i) {
    strangers.push_back(std::make_unique<Http2Peer>(server_->address()));
    for (int s = 0; s < kStreams; ++s) strangers.back()->OpenStream("/holdfast.v1.Control/Status", kLargeMessage);
    while (strangers.back()->SendAll()) {
    }
  }
  EXPECT_LT(GrownMiB(), 96);
  // And whoever comes from elsewhere has a place.
  RecordingClient late;
  auto client = StartClient(server_->address(), &late, {.token = "right"});
  EXPECT_TRUE(late.Until([&] { return late.connected == 1; }));
}

}  // namespace
}  // namespace holdfast
