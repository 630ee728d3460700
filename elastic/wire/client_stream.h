#pragma once
// One stream on the client's side, from the attempt to connect to its end. For this room only: it names generated
// classes.
//
// gRPC's rules that shape it: one read and one write at a time; a hold keeps OnDone away while other threads may still
// start writes, and nothing is started after it is given back.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "elastic/wire/control_client.h"
#include "elastic/wire/holdfast.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace holdfast {

/// The same code and message.
absl::Status FromGrpc(const grpc::Status& status);

/// Thread-safe. Destroyed only after WaitUntilDone returned true; never if that does not come (Abandon).
class ClientStream final : public grpc::ClientBidiReactor<v1::ToCoordinator, v1::FromCoordinator> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  ClientStream(const ControlClientOptions& options, std::shared_ptr<grpc::Channel> channel, ClientHandler* handler);

  void Begin();
  bool Send(const WorkerMessage& message);
  /// The stream ends when what was queued is written.
  void CloseAfterWrites();
  void Cancel(const absl::Status& reason);

  /// Each false if `deadline` came first.
  bool WaitUntilConnectedOrDone(TimePoint deadline);
  bool WaitUntilDone(TimePoint deadline);

  /// Since it was cancelled, while it is not done; else 0. gRPC ends a cancelled stream at once, unless it has no
  /// threads.
  std::chrono::nanoseconds OverdueFor();
  /// No call of the handler comes any more.
  void Abandon();

  bool was_connected();
  int64_t received() const { return received_; }  // messages so far
  absl::Status reason();                          // why it ended

 private:
  struct Outgoing {
    v1::ToCoordinator message;
    size_t bytes = 0;
  };

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // With mutex_ held:
  void WriteNext();
  void EndWrites();
  void CancelWith(const absl::Status& reason);

  const size_t max_queued_bytes_;
  ClientHandler* const handler_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  v1::FromCoordinator incoming_;
  std::atomic<int64_t> received_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;  // the first one is being written if writing_
  size_t queued_bytes_ = 0;
  bool connected_ = false, closing_ = false, writing_ = false, holding_ = true, done_ = false, abandoned_ = false;
  std::optional<TimePoint> cancelled_at_;
  absl::Status reason_;
};

}  // namespace holdfast
