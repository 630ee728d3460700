#include "elastic/worker/peer_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/seconds.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAgain{300};  // a connection whose packets are lost is tried anew: the kernel waits a second
constexpr milliseconds kLook{20};    // for a stop
constexpr size_t kMostAtOnce = 512;  // each is an open file

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

absl::StatusOr<Address> Resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(host, ": ", gai_strerror(error)));
  const addrinfo* chosen = found;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      chosen = a;
      break;
    }
  }
  Address address;
  address.size = chosen->ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(chosen->ai_addr), address.size, reinterpret_cast<char*>(&address.bytes));
  freeaddrinfo(found);
  return address;
}

/// Of "10.0.0.3:41234" or "[fe80::1]:41234".
absl::StatusOr<Address> Parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError(absl::StrCat(text, " has no port"));
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return Resolve(host, text.substr(colon + 1), AI_NUMERICHOST | AI_NUMERICSERV);
}

/// One connection after the other to one address, until one stands.
class Attempt {
 public:
  explicit Attempt(const std::string& address) {
    const auto parsed = Parse(address);
    over_ = !parsed.ok();
    if (parsed.ok()) to_ = *parsed;
  }
  ~Attempt() { Close(); }
  Attempt(Attempt&& other) noexcept
      : to_(other.to_),
        fd_(std::exchange(other.fd_, -1)),
        begun_(other.begun_),
        over_(other.over_),
        reached_(other.reached_) {}
  Attempt& operator=(Attempt&&) = delete;

  bool over() const { return over_; }
  bool reached() const { return reached_; }
  int fd() const { return fd_; }

  /// Looks at the connection under way, and begins one where it is time to.
  void Go(Clock::time_point now) {
    if (over_) return;
    if (fd_ >= 0) {
      pollfd look{fd_, POLLOUT, 0};
      if (poll(&look, 1, 0) == 1) Conclude();
    }
    if (!over_ && now - begun_ >= kAgain) Begin(now);
  }

 private:
  void Begin(Clock::time_point now) {
    Close();
    begun_ = now;
    fd_ = socket(to_.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return;  // no handles left: again later
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to_.bytes), to_.size) == 0) return Reached();
    if (errno != EINPROGRESS) Fail(errno);
  }
  void Conclude() {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return Reached();
    Fail(error);
  }
  void Reached() {
    over_ = reached_ = true;
    Close();
  }
  // Nobody listens there: the address is that of another machine, or of a process that is gone. All else may pass.
  void Fail(int error) {
    over_ = error == ECONNREFUSED;
    Close();
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

  Address to_;
  int fd_ = -1;
  Clock::time_point begun_{};
  bool over_ = false, reached_ = false;
};

std::vector<double> Reach(const std::vector<std::string>& addresses, const std::stop_token& stop) {
  std::vector<Attempt> attempts;
  attempts.reserve(addresses.size());
  for (const std::string& address : addresses) attempts.emplace_back(address);
  std::vector<double> seconds(addresses.size(), -1);
  const Clock::time_point start = Clock::now();
  while (!stop.stop_requested() && Clock::now() - start < PeerProbe::kLimit) {
    std::vector<pollfd> polled;
    for (size_t i = 0; i < attempts.size(); ++i) {
      attempts[i].Go(Clock::now());
      if (attempts[i].reached() && seconds[i] < 0) seconds[i] = SecondsSince(start);
      if (attempts[i].fd() >= 0) polled.push_back({attempts[i].fd(), POLLOUT, 0});
    }
    if (std::all_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.over(); })) break;
    poll(polled.data(), polled.size(), static_cast<int>(kLook.count()));
  }
  return seconds;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerProbe>> PeerProbe::Listen(const std::string& host) {
  auto resolved = Resolve(host, "0", AI_PASSIVE);
  if (!resolved.ok()) return resolved.status();
  const auto fail = [&](const char* what, int fd) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat(what, " on ", host));
  };
  const int fd = socket(resolved->bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail("socket", fd);
  auto* address = reinterpret_cast<sockaddr*>(&resolved->bytes);
  if (bind(fd, address, resolved->size) != 0) return fail("bind", fd);
  if (listen(fd, SOMAXCONN) != 0) return fail("listen", fd);
  if (getsockname(fd, address, &resolved->size) != 0) return fail("getsockname", fd);
  char name[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address, resolved->size, name, sizeof(name), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV)) {
    return fail("getnameinfo", fd);
  }
  const bool v6 = resolved->bytes.ss_family == AF_INET6;
  return std::unique_ptr<PeerProbe>(
      new PeerProbe(fd, v6 ? absl::StrCat("[", name, "]:", port) : absl::StrCat(name, ":", port)));
}

PeerProbe::PeerProbe(int fd, std::string address)
    : fd_(fd),
      address_(std::move(address)),
      answering_([this](const std::stop_token& stop) { Answer(stop); }),
      working_([this](const std::stop_token& stop) { Work(stop); }) {}

PeerProbe::~PeerProbe() {
  answering_ = {};
  working_ = {};
  close(fd_);
}

// The connection stands before we see it; all that is to be done is to take it away.
void PeerProbe::Answer(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    pollfd look{fd_, POLLIN, 0};
    if (poll(&look, 1, 10 * static_cast<int>(kLook.count())) != 1) continue;
    const int connection = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) close(connection);
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
    for (size_t at = 0; at < round.addresses.size(); at += kMostAtOnce) {
      const size_t end = std::min(at + kMostAtOnce, round.addresses.size());
      const std::vector<std::string> some(round.addresses.begin() + static_cast<int64_t>(at),
                                          round.addresses.begin() + static_cast<int64_t>(end));
      for (const double s : Reach(some, stop)) seconds.push_back(s);
    }
    if (stop.stop_requested()) return;
    round.done(std::move(seconds));
  }
}

}  // namespace holdfast
