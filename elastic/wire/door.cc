#include "elastic/wire/door.h"

#include <fcntl.h>
#include <linux/tcp.h>  // glibc's has no tcpi_bytes_received
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/log.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr uint64_t kWake = 0;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors(100);
constexpr char kCut[] = "cut ";

// A peer of IPv4 at a socket that serves both.
SocketAddress Unmapped(const SocketAddress& address) {
  sockaddr_in6 v6;
  std::memcpy(&v6, &address.storage, sizeof(v6));
  if (address.family() != AF_INET6 || IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) == 0) return address;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
  SocketAddress unmapped;
  std::memcpy(&unmapped.storage, &v4, sizeof(v4));
  unmapped.size = sizeof(v4);
  return unmapped;
}

// "[fe80::1%eth0]:5" -> "[fe80::1]:5": the interface has two names.
std::string WithoutInterface(std::string name) {
  const size_t begin = name.find('%');
  if (begin != std::string::npos) name.erase(begin, name.find(']', begin) - begin);
  return name;
}

std::string NameOf(const std::string& peer) {
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  return WithoutInterface(plain.substr(plain.find(':') + 1));
}

size_t BytesReceived(const FileDescriptor& socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size);
  return info.tcpi_bytes_received;
}

absl::Status Watch(const FileDescriptor& epoll, const FileDescriptor& fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  const bool watched = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  return watched ? absl::OkStatus() : ErrnoToStatus(errno, "epoll_ctl");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Door>> Door::Make(Listener listener, const DoorOptions& options, HandOver hand_over) {
  std::unique_ptr<Door> door(new Door(std::move(listener), options, std::move(hand_over)));
  door->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!door->epoll_.ok()) return ErrnoToStatus(errno, "epoll_create");
  for (FileDescriptor* event : {&door->wake_, &door->closing_}) {
    *event = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!event->ok()) return ErrnoToStatus(errno, "eventfd");
  }
  RETURN_IF_ERROR(Watch(door->epoll_, door->wake_, EPOLLIN | EPOLLET, kWake));
  const int on = 1;  // for the connections that come
  setsockopt(door->listener_.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return door;
}

void Door::Open() {
  watching_ = std::thread([this] { Watching(); });
  arrivals_ = std::thread([this] { Arrivals(); });
}

void Door::Close() {
  const auto set = [this](bool& flag) {
    const std::lock_guard lock(mutex_);
    flag = true;
  };
  set(closed_);
  if (closing_.ok()) eventfd_write(closing_.get(), 1);
  if (arrivals_.joinable()) arrivals_.join();  // after what it hands over has ended or been cut
  set(unwatched_);
  if (wake_.ok()) eventfd_write(wake_.get(), 1);
  if (watching_.joinable()) watching_.join();
  const std::lock_guard lock(mutex_);
  while (!strangers_.empty()) Forget(strangers_.begin());
}

void Door::LetIn(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(NameOf(peer));
  if (found != by_name_.end()) Forget(strangers_.find(found->second));
}

void Door::Arrivals() {
  std::array<pollfd, 2> events{pollfd{listener_.socket.get(), POLLIN, 0}, pollfd{closing_.get(), POLLIN, 0}};
  while (true) {
    poll(events.data(), events.size(), -1);
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
    }
    Accept();
  }
}

void Door::Watching() {
  std::array<epoll_event, 64> events;
  while (true) {
    int timeout;
    {
      const std::lock_guard lock(mutex_);
      if (unwatched_) return;
      CutLate();
      timeout = MillisecondsLeft();
    }
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 != kWake) OnEvent(event.data.u64, event.events);
    }
  }
}

// As many as there are, but no more than a few before it is asked whether to go on.
void Door::Accept() {
  for (int i = 0; i < 16; ++i) {
    SocketAddress peer;
    peer.size = sizeof(peer.storage);
    FileDescriptor connection(accept4(listener_.socket.get(), peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.ok()) {
      // No descriptors or memory: those that are late give theirs back.
      const bool is_full = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
      if (is_full) std::this_thread::sleep_for(kPauseWithoutDescriptors);
      return;
    }
    if (Receive(connection, Unmapped(peer))) hand_over_(std::move(connection));
  }
}

// Before it is handed over: a call on it may be let in at once.
bool Door::Receive(const FileDescriptor& connection, const SocketAddress& peer) {
  const std::lock_guard lock(mutex_);
  Stranger stranger{FileDescriptor(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0)), WithoutInterface(HostAndPort(peer)),
                    OriginOf(peer), Clock::now() + options_.patience};
  if (!stranger.socket.ok() || !MakePlace(stranger)) return false;
  const uint64_t id = ++last_id_;
  // At every arrival, whether the server has read it or not.
  if (!Watch(epoll_, stranger.socket, EPOLLIN | EPOLLET, id).ok()) return false;
  by_name_[stranger.name] = id;
  places_.Add(stranger.origin, id);
  strangers_.emplace(id, std::move(stranger));
  if (strangers_.size() == 1) eventfd_write(wake_.get(), 1);  // nothing had a deadline before
  return true;
}

bool Door::MakePlace(const Stranger& stranger) {
  if (strangers_.size() < options_.max_strangers) return true;
  constexpr char kWhy[] = "its host has too many connections of which no call was let in";
  const std::optional<uint64_t> loses = places_.LosesTo(stranger.origin);
  loses.has_value() ? static_cast<void>(Cut(strangers_.find(*loses), kWhy)) : Log(stranger, kCut, kWhy);
  return loses.has_value();
}

void Door::OnEvent(uint64_t id, uint32_t events) {
  const std::lock_guard lock(mutex_);
  const auto at = strangers_.find(id);
  if (at == strangers_.end()) return;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    // One that sent nothing is a probe of whether somebody listens.
    if (options_.has_tls && BytesReceived(at->second.socket) > 0) {
      Log(at->second, "let go of ",
          "it ended before a call of it was let in, as without a certificate of the authority");
    }
    Forget(at);
  } else if (BytesReceived(at->second.socket) > options_.max_bytes) {
    Cut(at, "it sent too much before a call of it was let in");
  }
}

void Door::CutLate() {
  for (auto at = strangers_.begin(); at != strangers_.end() && at->second.deadline <= Clock::now();) {
    at = Cut(at, "no call of it was let in, in time");
  }
}

int Door::MillisecondsLeft() const {
  if (strangers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(strangers_.begin()->second.deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Door::Log(const Stranger& stranger, const char* what, const char* why) {
  const auto line = lines_.Line(Clock::now().time_since_epoch(), absl::StrCat(what, stranger.name, ": ", why));
  if (line.has_value()) LogWarning(*line);
}

Door::Strangers::iterator Door::Cut(Strangers::iterator at, const char* why) {
  Log(at->second, kCut, why);
  // Reset at once, what has come and was not read is dropped, and the server closes it: after a shutdown it would read
  // on, and a peer that sends without end would stay.
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  static_cast<void>(connect(at->second.socket.get(), &nobody, sizeof(nobody)));
  return Forget(at);
}

Door::Strangers::iterator Door::Forget(Strangers::iterator at) {
  const Stranger& stranger = at->second;
  // Closing one of two descriptors of a connection does not end that it is watched.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.socket.get(), nullptr);
  const auto named = by_name_.find(stranger.name);
  if (named != by_name_.end() && named->second == at->first)
    by_name_.erase(named);  // else a later connection has the name
  places_.Remove(stranger.origin, at->first);
  return strangers_.erase(at);
}

}  // namespace holdfast
