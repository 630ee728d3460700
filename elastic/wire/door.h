#pragma once
// Where connections come in, before anybody knows whose they are. Each goes to the server at once and is watched until
// a call on it has been let in. Until then it has little time, may send little, and takes one of a number of places:
//
//   after `patience`           it is cut
//   beyond `max_bytes`         it is cut; gRPC alone would keep headers without an end, however long they are
//   when no place is left      who has most of them loses the newest (door_places.h)
//
// So strangers take neither memory nor descriptors without bound, and those of one host do not keep others out. A
// connection is watched through a second descriptor: the first one is the server's, which does not say when it ends.
//
// Example:
//   ASSIGN_OR_RETURN(auto door, Door::Make(std::move(listener), {.patience = 10s}, hand_over));
//   door->Open();
//   door->LetIn(context.peer());

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "elastic/wire/door_places.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/rare_log.h"
#include "framework/net/socket_address.h"

namespace holdfast {

struct DoorOptions {
  std::chrono::milliseconds patience{10'000};
  size_t max_strangers = 1024;
  size_t max_bytes = size_t{128} << 10;  // certificates and headers take some ten KiB
  bool has_tls = false;                  // so that who ends in the handshake is logged; the server says nothing of it
};

/// Thread-safe.
class Door {
 public:
  /// Of a thread of the door, for every connection. The server may read there what has come already, for as long as
  /// there is more: those that watch are on another thread.
  using HandOver = std::function<void(FileDescriptor connection)>;

  static absl::StatusOr<std::unique_ptr<Door>> Make(Listener listener, const DoorOptions& options, HandOver hand_over);
  ~Door() { Close(); }

  /// Begins to accept.
  void Open();
  /// A call of `peer`, by gRPC's name of it ("ipv4:10.0.0.7:41234"), was let in: it is no stranger any more.
  void LetIn(const std::string& peer);
  /// Accepts nobody any more, and watches nobody. Nothing is handed over after it.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stranger {
    FileDescriptor socket;  // a second one of its connection
    std::string name;
    Origin origin;
    Clock::time_point deadline;
  };
  using Strangers = std::map<uint64_t, Stranger>;  // the oldest first

  Door(Listener listener, const DoorOptions& options, HandOver hand_over)
      : options_(options), hand_over_(std::move(hand_over)), listener_(std::move(listener)) {}

  void Arrivals();
  void Watching();
  void Accept();
  bool Receive(const FileDescriptor& connection, const SocketAddress& peer);
  void OnEvent(uint64_t id, uint32_t events);
  // With mutex_ held:
  bool MakePlace(const Stranger& stranger);
  void Log(const Stranger& stranger, const char* what, const char* why);
  void CutLate();
  int MillisecondsLeft() const;
  Strangers::iterator Cut(Strangers::iterator at, const char* why);
  Strangers::iterator Forget(Strangers::iterator at);

  const DoorOptions options_;
  const HandOver hand_over_;
  const Listener listener_;
  FileDescriptor epoll_, wake_, closing_;

  std::mutex mutex_;
  bool closed_ = false, unwatched_ = false;
  Strangers strangers_;
  std::map<std::string, uint64_t> by_name_;
  DoorPlaces places_;
  uint64_t last_id_ = 0;
  RareLog lines_{std::chrono::seconds(10)};
  std::thread arrivals_, watching_;
};

}  // namespace holdfast
