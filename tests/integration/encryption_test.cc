// What workers send each other, as somebody sees it who reads the network: Gloo's messages, or only TLS with
// parallel.encrypt. The bits are the same.

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/tiny_runs.h"

namespace holdfast::integration {
namespace {

struct Seen {
  int64_t gloo = 0,
          tls = 0;  // packets that begin with the head of a message of Gloo, or of a record of application data
};

/// Counts what passes the loopback of this thread's network until it is stopped.
class Reader {
 public:
  explicit Reader(int socket) : socket_(socket), thread_([this] { Read(); }) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { Stop(); }

  Seen Stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
    return seen_;
  }

 private:
  void Read() {
    std::array<char, 70'000> packet;
    while (true) {
      const ssize_t size = recv(socket_, packet.data(), packet.size(), 0);  // ends after a while without packets
      if (size < 0 && stopped_) return;
      if (size >= static_cast<ssize_t>(sizeof(ethhdr) + sizeof(iphdr)))
        Look(packet.data() + sizeof(ethhdr), size - sizeof(ethhdr));
    }
  }

  void Look(const char* packet, size_t size) {
    iphdr ip;
    std::memcpy(&ip, packet, sizeof(ip));
    const size_t tcp_at = size_t{4} * ip.ihl;
    if (ip.version != 4 || ip.protocol != IPPROTO_TCP || size < tcp_at + sizeof(tcphdr)) return;
    tcphdr tcp;
    std::memcpy(&tcp, packet + tcp_at, sizeof(tcp));
    const size_t at = tcp_at + size_t{4} * tcp.doff;
    if (size < at + 6 * sizeof(uint64_t)) return;
    std::array<uint64_t, 6> head;  // bytes of the message, kind, slot, offset, length, offset there
    std::memcpy(head.data(), packet + at, sizeof(head));
    const bool record = std::memcmp(packet + at, "\x17\x03\x03", 3) == 0;
    seen_.tls += record ? 1 : 0;
    seen_.gloo += !record && head[1] <= 3 && head[0] >= sizeof(head) && head[0] < uint64_t{1} << 32 ? 1 : 0;
  }

  const int socket_;
  Seen seen_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

bool EnterNetworkOfItsOwn() {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(any, SIOCSIFFLAGS, &loopback) == 0;
  close(any);
  return up;
}

class EncryptionTest : public TinyRuns {
 protected:
  /// In a network where nothing else is; none if this process may not make one.
  std::optional<Seen> SeenOf(const std::string& run, const std::string& encrypt) {
    std::optional<Seen> seen;
    std::thread([&] {
      if (!EnterNetworkOfItsOwn()) return;
      const int packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
      const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
      ASSERT_EQ(setsockopt(packets, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
      Reader reader(packets);
      const CommandResult trained = Train(run, {"--workers", "3", "--set", "parallel.encrypt=" + encrypt});
      seen = reader.Stop();
      close(packets);
      EXPECT_EQ(trained.exit_code, 0) << trained.output;
    }).join();
    return seen;
  }
};

TEST_F(EncryptionTest, NobodyReadsWhatWorkersSend) {
  const std::optional<Seen> plain = SeenOf("plain", "false"), encrypted = SeenOf("encrypted", "true");
  if (!plain.has_value() || !encrypted.has_value()) GTEST_SKIP() << "a network of its own needs root";
  EXPECT_GT(plain->gloo, 0);
  EXPECT_EQ(plain->tls, 0);
  EXPECT_EQ(encrypted->gloo, 0);
  EXPECT_GT(encrypted->tls, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("plain"), Path("encrypted")}).exit_code, 0);
}

}  // namespace
}  // namespace holdfast::integration
