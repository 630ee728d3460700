#include "framework/comm/gloo/connector.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"
#include "framework/comm/gloo/handshake.h"

namespace holdfast {
namespace {

constexpr int kBacklog = 4096;       // the kernel's own limit (net.core.somaxconn) may be lower
constexpr size_t kMaxDialled = 512;  // at once, so that a thousand peers are not asked in one moment
constexpr size_t kMaxStrangers = 256;
constexpr int kMaxRedials = 100;  // of a peer that has closed a connection before it proved itself

absl::Status Failed(const char* call) { return absl::UnavailableError(absl::StrCat(call, ": ", std::strerror(errno))); }

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// A connection between two members in one mesh.
struct Link {
  size_t mesh = 0;
  int peer = 0;         // world rank
  size_t position = 0;  // of the peer in the mesh
  int redials = 0;
};

std::string RanksText(const std::vector<int>& ranks) {
  constexpr size_t kMost = 16;
  return absl::StrCat("rank ", JoinFirst(ranks, kMost, absl::AlphaNumFormatter()));
}

/// All connections of one rank, from the first to the last.
class Setup {
 public:
  Setup(int rank, const std::vector<MemberAddress>& members, const std::vector<std::vector<int>>& meshes, int listener,
        bool encrypt, std::stop_token stop, Deadline deadline)
      : rank_(rank),
        members_(members),
        key_(KeyOf(members)),
        listener_(listener),
        encrypt_(encrypt),
        stop_(std::move(stop)),
        deadline_(deadline) {
    for (size_t mesh = 0; mesh < meshes.size(); ++mesh) Plan(mesh, meshes[mesh]);
    // Every member dials its neighbour first, so that no member is dialled by all at the same moment.
    const auto size = static_cast<int>(members_.size());
    std::stable_sort(to_dial_.begin(), to_dial_.end(), [&](const Link& a, const Link& b) {
      return (a.peer - rank_ + size) % size < (b.peer - rank_ + size) % size;
    });
  }

  absl::Status Run() {
    absl::Status status = ConnectAll();
    if (refused_ > 0) {
      LogWarning("rank ", rank_, " refused ", refused_, " connections of no member of generation ",
                 members_[static_cast<size_t>(rank_)].generation, ", the last from ", last_refused_);
    }
    return status;
  }

  std::vector<std::vector<Connection>> TakeConnections() { return std::move(connections_); }

 private:
  absl::Status ConnectAll() {
    RETURN_IF_ERROR(Open());
    const std::stop_callback wake(stop_, [this] { eventfd_write(wake_.get(), 1); });
    while (next_ < to_dial_.size() || dialled_ > 0 || !awaited_.empty()) {
      while (dialled_ < kMaxDialled && next_ < to_dial_.size()) RETURN_IF_ERROR(Dial(to_dial_[next_++]));
      RETURN_IF_ERROR(Wait());
    }
    return absl::OkStatus();
  }

  /// A connection on its way.
  struct Attempt {
    Handshake handshake;
    std::optional<Link> dialled = {};  // unless the peer dials
    FileDescriptor socket = {};
    std::optional<TlsStream> tls = {};  // once both have proven themselves
    bool connecting = false;
    SocketAddress peer = {};
    std::array<char, Handshake::kMaxMessageBytes> bytes = {};
    size_t received = 0;
  };
  using Attempts = std::map<uint64_t, Attempt>;

  void Plan(size_t mesh, const std::vector<int>& ranks) {
    connections_.emplace_back(ranks.size());
    if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return;
    for (size_t position = 0; position < ranks.size(); ++position) {
      const Link link{mesh, ranks[position], position};
      if (link.peer == rank_) continue;
      if (Dials(rank_, link.peer, static_cast<int>(members_.size()))) {
        to_dial_.push_back(link);
      } else {
        awaited_[{mesh, link.peer}] = position;
      }
    }
  }

  absl::Status Open() {
    epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.ok()) return Failed("epoll_create");
    wake_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wake_.ok()) return Failed("eventfd");
    RETURN_IF_ERROR(Watch(wake_.get(), EPOLLIN, kWake));
    return Watch(listener_, EPOLLIN, kListener);
  }

  absl::Status Watch(int fd, uint32_t events, uint64_t id, int operation = EPOLL_CTL_ADD) const {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0 ? absl::OkStatus() : Failed("epoll_ctl");
  }

  absl::Status Wait() {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    std::array<epoll_event, 256> events;
    const int timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000));
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (stop_.stop_requested()) return absl::AbortedError(absl::StrCat(RanksText(Missing()), ": abandoned"));
    if (std::chrono::steady_clock::now() >= deadline_) {
      const std::vector<int> missing = Missing();
      return Blaming(absl::DeadlineExceededError(absl::StrCat(RanksText(missing), ": took too long")), missing);
    }
    for (int i = 0; i < count; ++i) RETURN_IF_ERROR(OnEvent(events[static_cast<size_t>(i)].data.u64));
    return absl::OkStatus();
  }

  absl::Status OnEvent(uint64_t id) {
    if (id == kListener) return Accept();
    const auto attempt = attempts_.find(id);
    if (attempt == attempts_.end()) return absl::OkStatus();
    if (!attempt->second.dialled.has_value()) {
      AdvanceAccepted(attempt);
      return absl::OkStatus();
    }
    const Link link = *attempt->second.dialled;  // an attempt that succeeds is gone
    const absl::Status status = attempt->second.connecting ? Begin(attempt) : Advance(attempt).status();
    if (absl::IsPermissionDenied(status)) {
      return Blame(link.peer, absl::UnavailableError("a process that is not of this world listens there"));
    }
    const bool was_let_go = absl::IsUnavailable(status) && !attempt->second.connecting;
    return was_let_go && link.redials < kMaxRedials ? Redial(attempt) : Blame(link.peer, status);
  }

  // --- connections that this rank opens -----------------------------------------------------------------------------
  absl::Status Dial(const Link& link) {
    const MemberAddress& member = members_[static_cast<size_t>(link.peer)];
    Attempt attempt{.handshake = Handshake::Dial(key_, static_cast<uint32_t>(link.mesh), static_cast<uint32_t>(rank_),
                                                 static_cast<uint32_t>(link.peer)),
                    .dialled = link,
                    .connecting = true,
                    .peer = member.listener};
    attempt.socket = OpenSocket(member.listener.family(), SOCK_STREAM, SOCK_NONBLOCK);
    if (!attempt.socket.ok()) return Failed("socket");
    const int fd = attempt.socket.get();
    if (connect(fd, member.listener.get(), member.listener.size) != 0 && errno != EINPROGRESS) {
      const bool refused = errno == ECONNREFUSED;  // else it is this machine that has no port or no route
      const absl::Status status = Failed("connect");
      return refused ? Blame(link.peer, status) : Annotate(status, RanksText({link.peer}));
    }
    RETURN_IF_ERROR(Watch(fd, EPOLLOUT, ++last_id_));
    attempts_.emplace(last_id_, std::move(attempt));
    ++dialled_;
    return absl::OkStatus();
  }

  // A member that strangers keep busy may have dropped us among them.
  absl::Status Redial(Attempts::iterator at) {
    Link link = *at->second.dialled;
    ++link.redials;
    attempts_.erase(at);
    --dialled_;
    return Dial(link);
  }

  absl::Status Begin(Attempts::iterator at) {
    Attempt& attempt = at->second;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return Failed("connect");
    }
    attempt.connecting = false;
    RETURN_IF_ERROR(Send(attempt, attempt.handshake.First()));
    return Watch(attempt.socket.get(), EPOLLIN, at->first, EPOLL_CTL_MOD);
  }

  // --- connections that others open ---------------------------------------------------------------------------------
  // As many as there are, but no more than some before the others are read.
  absl::Status Accept() {
    for (int i = 0; i < 64; ++i) {
      Attempt attempt{.handshake = Handshake::Answer(key_, static_cast<uint32_t>(rank_))};
      attempt.peer.size = sizeof(attempt.peer.storage);
      attempt.socket =
          FileDescriptor(accept4(listener_, attempt.peer.get(), &attempt.peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!attempt.socket.ok()) {
        return WouldBlock() || errno == ECONNABORTED ? absl::OkStatus() : Failed("accept");
      }
      if (attempts_.size() - dialled_ >= awaited_.size() + kMaxStrangers) DropOldest();
      RETURN_IF_ERROR(Watch(attempt.socket.get(), EPOLLIN, ++last_id_));
      attempts_.emplace(last_id_, std::move(attempt));
    }
    return absl::OkStatus();
  }

  // Of those that have not proven themselves; what has arrived of it meanwhile is read.
  void DropOldest() {
    const auto oldest = std::find_if(attempts_.begin(), attempts_.end(), [](const auto& a) {
      return !a.second.dialled.has_value() && !a.second.tls.has_value();
    });
    if (oldest == attempts_.end()) return;
    const uint64_t id = oldest->first;
    AdvanceAccepted(oldest);
    const auto still = attempts_.find(id);
    if (still != attempts_.end()) Refuse(still);
  }

  // A peer that proves nothing is no member: it is dropped, and nothing fails.
  void AdvanceAccepted(Attempts::iterator at) {
    const absl::StatusOr<bool> proven = Advance(at);
    if (absl::IsUnavailable(proven.status())) attempts_.erase(at);
    if (absl::IsPermissionDenied(proven.status())) Refuse(at);
  }

  void Refuse(Attempts::iterator at) {
    ++refused_;
    last_refused_ = HostAndPort(at->second.peer);
    attempts_.erase(at);
  }

  // --- both ---------------------------------------------------------------------------------------------------------
  /// Goes on with the handshake as far as bytes are there, and keeps the socket of one that is done. Unavailable: the
  /// connection is lost. PermissionDenied: the peer is no member, or not awaited.
  absl::StatusOr<bool> Advance(Attempts::iterator at) {
    Attempt& attempt = at->second;
    if (attempt.tls.has_value()) return AdvanceTls(at);
    ASSIGN_OR_RETURN(const bool whole, Receive(&attempt, attempt.handshake.awaited()));
    if (!whole) return false;
    ASSIGN_OR_RETURN(const std::string answer, attempt.handshake.Take({attempt.bytes.data(), attempt.received}));
    attempt.received = 0;
    const bool done = attempt.handshake.done();
    if (done) RETURN_IF_ERROR(CheckAwaited(attempt));
    RETURN_IF_ERROR(Send(attempt, answer));
    if (!done) return false;
    if (!encrypt_) return Keep(at);
    attempt.tls.emplace(attempt.dialled.has_value() ? TlsStream::Side::kDialer : TlsStream::Side::kListener,
                        attempt.handshake.ConnectionKey(), attempt.socket.get());
    return AdvanceTls(at);
  }

  absl::StatusOr<bool> AdvanceTls(Attempts::iterator at) {
    ASSIGN_OR_RETURN(const bool ready, at->second.tls->Advance());
    if (!ready) return false;
    RETURN_IF_ERROR(CheckAwaited(at->second));
    return Keep(at);
  }

  absl::Status CheckAwaited(const Attempt& attempt) const {
    if (attempt.dialled.has_value() || awaited_.count(From(attempt)) > 0) return absl::OkStatus();
    return absl::PermissionDeniedError("it is connected already");
  }

  static std::pair<size_t, int> From(const Attempt& attempt) {
    return {attempt.handshake.mesh(), static_cast<int>(attempt.handshake.dialer())};
  }

  // A message always fits into a send buffer that is empty.
  static absl::Status Send(const Attempt& attempt, const std::string& message) {
    const ssize_t sent = send(attempt.socket.get(), message.data(), message.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(message.size()) ? absl::OkStatus() : Failed("send");
  }

  /// Whether `size` bytes are there. Unavailable if no more come.
  static absl::StatusOr<bool> Receive(Attempt* attempt, size_t size) {
    const ssize_t got = recv(attempt->socket.get(), &attempt->bytes[attempt->received], size - attempt->received, 0);
    if (got < 0 && WouldBlock()) return false;
    if (got < 0) return Failed("receive");
    if (got == 0) return absl::UnavailableError("it closed the connection");
    attempt->received += static_cast<size_t>(got);
    return attempt->received == size;
  }

  bool Keep(Attempts::iterator at) {
    Attempt& attempt = at->second;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, attempt.socket.get(), nullptr);
    Connection connection{std::move(attempt.socket), std::move(attempt.tls)};
    if (attempt.dialled.has_value()) {
      --dialled_;
      connections_[attempt.dialled->mesh][attempt.dialled->position] = std::move(connection);
    } else {
      const auto awaited = awaited_.find(From(attempt));
      connections_[awaited->first.first][awaited->second] = std::move(connection);
      awaited_.erase(awaited);
    }
    attempts_.erase(at);
    return true;
  }

  static absl::Status Blame(int peer, const absl::Status& status) {
    return status.ok() ? status : Blaming(Annotate(status, RanksText({peer})), {peer});
  }

  std::vector<int> Missing() const {
    std::set<int> ranks;
    for (const auto& [link, position] : awaited_) ranks.insert(link.second);
    for (const auto& [id, attempt] : attempts_) {
      if (attempt.dialled.has_value()) ranks.insert(attempt.dialled->peer);
    }
    return {ranks.begin(), ranks.end()};
  }

  static constexpr uint64_t kWake = 0, kListener = 1;

  const int rank_;
  const std::vector<MemberAddress>& members_;
  const WorldKey key_;
  const int listener_;
  const bool encrypt_;
  const std::stop_token stop_;
  const Deadline deadline_;
  FileDescriptor epoll_, wake_;
  std::vector<Link> to_dial_;
  size_t next_ = 0;                                   // of to_dial_
  std::map<std::pair<size_t, int>, size_t> awaited_;  // mesh and rank of those that dial us -> position
  Attempts attempts_;
  size_t dialled_ = 0;  // of the attempts: those that we opened
  uint64_t last_id_ = kListener;
  int64_t refused_ = 0;
  std::string last_refused_;  // its address
  std::vector<std::vector<Connection>> connections_;
};

}  // namespace

bool Dials(int rank, int peer, int size) {
  const int forward = (peer - rank + size) % size;
  return 2 * forward < size || (2 * forward == size && rank < peer);
}

absl::StatusOr<Connector> Connector::Listen(const std::string& numeric_host, bool encrypt) {
  ASSIGN_OR_RETURN(const SocketAddress address, ResolveHost(numeric_host, 0, HostNames::kNumericOnly));
  Connector connector;
  ASSIGN_OR_RETURN(connector.listener_, holdfast::Listen(address, kBacklog));
  FillRandomly(&connector.key_, sizeof(connector.key_));
  connector.encrypt_ = encrypt;
  return connector;
}

absl::StatusOr<std::vector<std::vector<Connection>>> Connector::Connect(int rank,
                                                                        const std::vector<MemberAddress>& members,
                                                                        const std::vector<std::vector<int>>& meshes,
                                                                        const std::stop_token& stop,
                                                                        Deadline deadline) const {
  const NoSigPipe quiet;  // TLS writes to peers that may be gone
  Setup setup(rank, members, meshes, listener_.socket.get(), encrypt_, stop, deadline);
  RETURN_IF_ERROR(setup.Run());
  return setup.TakeConnections();
}

}  // namespace holdfast
