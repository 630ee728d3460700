#pragma once
// One stream on the server's side: reads one message after the other, writes what is queued in order, ends once. For
// this room only: it names generated classes.
//
// gRPC's rules that shape it: one read and one write at a time; nothing may be started after Finish; OnDone comes when
// everything started has come back, and is the last call.

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "elastic/control/coordinator.h"
#include "elastic/control/messages.h"
#include "elastic/wire/holdfast.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace holdfast {

class ControlStream;

class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void Deliver(Connection from, WorkerMessage message) = 0;
  /// The last call. `has_received`: Deliver was called before. The owner lets go of the stream.
  virtual void OnStreamDone(Connection connection, bool has_received, const std::string& cause) = 0;
};

struct StreamLimits {
  std::chrono::milliseconds first_message_timeout{};
  size_t max_queued_bytes = 0;
  size_t max_queued_messages = 0;
};

/// Thread-safe. Held by its owner and, until OnDone, by itself: gRPC keeps a plain pointer to it, and a thread that
/// sends may still hold it when OnDone comes; hence shared.
class ControlStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  ControlStream(Connection id, grpc::CallbackServerContext* context, const StreamLimits& limits, StreamOwner* owner);

  void Begin(std::shared_ptr<ControlStream> self);
  /// A message as it travels; copies share the bytes.
  static grpc::ByteBuffer BytesOf(const CoordinatorMessage& message);
  void Send(const grpc::ByteBuffer& bytes);
  /// Ends the stream when all that was queued is written.
  void CloseAfterWrites(const std::string& cause);
  /// Ends the stream now; what is queued is dropped.
  void Cut(const std::string& cause);
  /// Cuts a stream that is silent at its start, or takes too long to end.
  void CheckDeadlines(TimePoint now);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void ReadNext();
  // With mutex_ held:
  void WriteNext();
  void EndWith(const grpc::Status& status, const std::string& cause);
  void CutWith(const grpc::Status& status, const std::string& cause);
  void FinishIfIdle();

  const Connection id_;
  const StreamLimits limits_;
  StreamOwner* const owner_;
  const TimePoint began_ = std::chrono::steady_clock::now();
  grpc::ByteBuffer incoming_;

  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // gone after OnDone
  std::shared_ptr<ControlStream> self_;
  std::deque<grpc::ByteBuffer> queue_;  // the first one is being written if writing_
  size_t queued_bytes_ = 0;
  bool has_received_ = false, writing_ = false, ending_ = false, finished_ = false, done_ = false;
  TimePoint end_deadline_;
  grpc::Status status_;
  std::string cause_;
};

}  // namespace holdfast
