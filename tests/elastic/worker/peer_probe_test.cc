// Sockets that answer are told from those that refuse and from those whose packets are lost, which a listener with a
// full queue stands in for.

#include "elastic/worker/peer_probe.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "absl/strings/str_cat.h"
#include "tests/framework/net/test_ports.h"

namespace holdfast {
namespace {

/// Nobody takes its connections, and no more than a few fit.
class FullListener {
 public:
  FullListener() : fds_{socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)} {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    bind(fds_[0], reinterpret_cast<sockaddr*>(&at), size);
    listen(fds_[0], 0);
    getsockname(fds_[0], reinterpret_cast<sockaddr*>(&at), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
    for (int i = 0; i < 4; ++i) {
      fds_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      connect(fds_.back(), reinterpret_cast<sockaddr*>(&at), size);
    }
  }
  /// There is room from here on.
  void Take() {
    while (true) {
      const int taken = accept4(fds_[0], nullptr, nullptr, SOCK_CLOEXEC);
      if (taken < 0) return;
      fds_.push_back(taken);
    }
  }
  ~FullListener() {
    for (const int fd : fds_) close(fd);
  }
  const std::string& address() const { return address_; }

 private:
  std::vector<int> fds_;
  std::string address_;
};

std::vector<double> Try(PeerProbe& probe, const std::vector<std::string>& addresses) {
  std::promise<std::vector<double>> result;
  probe.Start(addresses, [&](std::vector<double> seconds) { result.set_value(std::move(seconds)); });
  return result.get_future().get();
}

TEST(PeerProbe, TellsWhoIsReached) {
  const auto here = PeerProbe::Listen("127.0.0.1"), there = PeerProbe::Listen("localhost");
  ASSERT_TRUE(here.ok() && there.ok()) << here.status() << there.status();
  const FullListener lost;
  const RefusingPort gone;
  const std::vector<double> seconds =
      Try(**here, {(*there)->address(), gone.address(), lost.address(), (*here)->address(), "nonsense"});
  ASSERT_EQ(seconds.size(), 5u);
  EXPECT_GE(seconds[0], 0);
  EXPECT_LT(seconds[1], 0);
  EXPECT_LT(seconds[2], 0);
  EXPECT_GE(seconds[3], 0);
  EXPECT_LT(seconds[4], 0);
}

TEST(PeerProbe, OfManyAtOnceAllAreTried) {
  const auto here = PeerProbe::Listen("127.0.0.1");
  ASSERT_TRUE(here.ok());
  const std::vector<double> seconds = Try(**here, std::vector<std::string>(1200, (*here)->address()));
  EXPECT_EQ(std::count_if(seconds.begin(), seconds.end(), [](double s) { return s >= 0; }), 1200);
}

bool ReachesAfterBeingFrozen() {
  FullListener late;
  const auto probe = PeerProbe::Listen("127.0.0.1");
  std::promise<std::vector<double>> result;
  (*probe)->Start({late.address()}, [&](std::vector<double> seconds) { result.set_value(std::move(seconds)); });
  const pid_t frozen = getpid();
  const pid_t freezer = fork();
  if (freezer == 0) {
    usleep(100'000);
    kill(frozen, SIGSTOP);
    usleep(2'500'000);
    kill(frozen, SIGCONT);
    _exit(0);
  }
  waitpid(freezer, nullptr, 0);
  late.Take();
  return result.get_future().get()[0] >= 0;
}

// Where a busy machine lets it run for a while before it is frozen, or before there is room, its time is over: again.
[[noreturn]] void ReachAfterBeingFrozen() {
  int attempts = 10;
  while (attempts > 0 && !ReachesAfterBeingFrozen()) --attempts;
  _exit(attempts > 0 ? 0 : 1);
}

TEST(PeerProbeDeathTest, TimeInWhichItWasFrozenIsNobodysSilence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReachAfterBeingFrozen(), testing::ExitedWithCode(0), "");
}

TEST(PeerProbe, EndsWhileItTries) {
  const FullListener lost;
  auto probe = PeerProbe::Listen("127.0.0.1");
  ASSERT_TRUE(probe.ok());
  (*probe)->Start({lost.address()}, [](const std::vector<double>&) { FAIL() << "it has ended"; });
  probe->reset();
}

TEST(PeerProbe, AnAddressThatIsNotOursIsAnError) { EXPECT_FALSE(PeerProbe::Listen("192.0.2.1").ok()); }

}  // namespace
}  // namespace holdfast
