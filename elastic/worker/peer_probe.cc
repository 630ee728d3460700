#include "elastic/worker/peer_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAgain{300};  // a connection whose packets are lost is tried anew: the kernel waits a second
constexpr milliseconds kLook{20};    // for a stop
constexpr size_t kMaxAtOnce = 512;   // each is an open file

/// Of "10.0.0.3:41234" or "[fe80::1]:41234".
absl::StatusOr<SocketAddress> Parse(const std::string& text) {
  ASSIGN_OR_RETURN(const auto host_and_port, SplitHostAndPort(text));
  return ResolveHost(host_and_port.first, host_and_port.second, HostNames::kNumericOnly);
}

/// One connection after the other to one address, until one stands.
class Attempt {
 public:
  explicit Attempt(const std::string& address) {
    const auto parsed = Parse(address);
    over_ = !parsed.ok();
    if (parsed.ok()) to_ = *parsed;
  }
  bool over() const { return over_; }
  bool reached() const { return reached_; }
  const FileDescriptor& socket() const { return socket_; }

  /// Looks at the connection under way, and begins one where it is time to.
  void Go(Clock::time_point now) {
    if (over_) return;
    if (socket_.ok()) {
      pollfd look{socket_.get(), POLLOUT, 0};
      if (poll(&look, 1, 0) == 1) Conclude();
    }
    if (!over_ && now - begun_ >= kAgain) Begin(now);
  }

 private:
  void Begin(Clock::time_point now) {
    begun_ = now;
    socket_ = OpenSocket(to_.family(), SOCK_STREAM, SOCK_NONBLOCK);
    if (!socket_.ok()) return;  // no handles left: again later
    if (connect(socket_.get(), to_.get(), to_.size) == 0) return Reached();
    if (errno != EINPROGRESS) Fail(errno);
  }
  void Conclude() {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return Reached();
    Fail(error);
  }
  void Reached() {
    over_ = reached_ = true;
    socket_ = FileDescriptor();
  }
  // Nobody listens there: the address is that of another machine, or of a process that is gone. All else may pass.
  void Fail(int error) {
    over_ = error == ECONNREFUSED;
    socket_ = FileDescriptor();
  }

  SocketAddress to_;
  FileDescriptor socket_;
  Clock::time_point begun_{};
  bool over_ = false, reached_ = false;
};

std::vector<double> Reach(const std::vector<std::string>& addresses, const std::stop_token& stop) {
  std::vector<Attempt> attempts;
  attempts.reserve(addresses.size());
  for (const std::string& address : addresses) attempts.emplace_back(address);
  std::vector<double> seconds(addresses.size(), -1);
  const Clock::time_point start = Clock::now();
  // Time in which this thread, or the whole machine, did not run is not the others' silence: it does not count, and
  // what stands by now is seen before the end.
  milliseconds looked{0};
  Clock::time_point last = start;
  for (bool is_last = false; !stop.stop_requested() && !is_last;) {
    const Clock::time_point now = Clock::now();
    looked += std::min(std::chrono::ceil<milliseconds>(now - last), 2 * kLook);
    last = now;
    is_last = looked >= PeerProbe::kLimit;
    std::vector<pollfd> polled;
    for (size_t i = 0; i < attempts.size(); ++i) {
      attempts[i].Go(now);
      if (attempts[i].reached() && seconds[i] < 0) seconds[i] = SecondsSince(start);
      if (attempts[i].socket().ok()) polled.push_back({attempts[i].socket().get(), POLLOUT, 0});
    }
    if (std::all_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.over(); })) break;
    poll(polled.data(), polled.size(), static_cast<int>(kLook.count()));
  }
  return seconds;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerProbe>> PeerProbe::Listen(const std::string& host) {
  ASSIGN_OR_RETURN(const SocketAddress address, ResolveHost(host));
  ASSIGN_OR_RETURN(Listener listener, holdfast::Listen(address));
  return std::unique_ptr<PeerProbe>(new PeerProbe(std::move(listener)));
}

PeerProbe::PeerProbe(Listener listener)
    : listener_(std::move(listener.socket)),
      address_(HostAndPort(listener.address)),
      answering_([this](const std::stop_token& stop) { Answer(stop); }),
      working_([this](const std::stop_token& stop) { Work(stop); }) {}

PeerProbe::~PeerProbe() {
  answering_ = {};
  working_ = {};
}

// The connection stands before we see it; all that is to be done is to take it away.
void PeerProbe::Answer(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    pollfd look{listener_.get(), POLLIN, 0};
    if (poll(&look, 1, 10 * static_cast<int>(kLook.count())) != 1) continue;
    const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.ok()) std::this_thread::sleep_for(10 * kLook);  // no descriptor is left: it stays ready
  }
}

void PeerProbe::Start(std::vector<std::string> addresses, Done done) {
  const std::lock_guard lock(mutex_);
  next_ = Round{std::move(addresses), std::move(done)};
  changed_.notify_all();
}

void PeerProbe::Work(const std::stop_token& stop) {
  while (true) {
    Round round;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return next_.has_value(); })) return;
      round = *std::exchange(next_, std::nullopt);
    }
    std::vector<double> seconds;
    for (size_t at = 0; at < round.addresses.size(); at += kMaxAtOnce) {
      const size_t end = std::min(at + kMaxAtOnce, round.addresses.size());
      const std::vector<std::string> some(round.addresses.begin() + static_cast<int64_t>(at),
                                          round.addresses.begin() + static_cast<int64_t>(end));
      for (const double s : Reach(some, stop)) seconds.push_back(s);
    }
    if (stop.stop_requested()) return;
    round.done(std::move(seconds));
  }
}

}  // namespace holdfast
