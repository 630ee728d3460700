#include "elastic/wire/control_stream.h"

#include <google/protobuf/arena.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/wire/convert.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kTimeToEnd(2);

absl::StatusOr<WorkerMessage> Parse(grpc::ByteBuffer* bytes) {
  google::protobuf::Arena arena;  // a claim of a large world is tens of thousands of small pieces
  auto* wire = google::protobuf::Arena::CreateMessage<v1::ToCoordinator>(&arena);
  if (!grpc::SerializationTraits<v1::ToCoordinator>::Deserialize(bytes, wire).ok()) {
    return absl::InvalidArgumentError("not a message");
  }
  return FromWire(*wire);
}

}  // namespace

ControlStream::ControlStream(Connection id, grpc::CallbackServerContext* context, const StreamLimits& limits,
                             StreamOwner* owner)
    : id_(id), limits_(limits), owner_(owner), context_(context) {}

void ControlStream::Begin(std::shared_ptr<ControlStream> self) {
  {
    const std::lock_guard lock(mutex_);
    self_ = std::move(self);
  }
  context_->AddInitialMetadata(kSessionMark, "1");
  StartSendInitialMetadata();
  ReadNext();
}

void ControlStream::ReadNext() {
  const std::lock_guard lock(mutex_);
  if (!ending_) StartRead(&incoming_);
}

void ControlStream::OnReadDone(bool ok) {
  if (!ok) {
    // Also when a message was too large.
    const std::lock_guard lock(mutex_);
    return EndWith(grpc::Status::OK, "the stream was closed by the peer");
  }
  absl::StatusOr<WorkerMessage> message = Parse(&incoming_);
  {
    const std::lock_guard lock(mutex_);
    if (!message.ok()) {
      const std::string problem(message.status().message());
      return CutWith({grpc::StatusCode::INVALID_ARGUMENT, problem}, absl::StrCat("sent a bad message: ", problem));
    }
    if (ending_) return;
    has_received_ = true;
  }
  owner_->Deliver(id_, *std::move(message));
  ReadNext();
}

grpc::ByteBuffer ControlStream::BytesOf(const CoordinatorMessage& message) {
  v1::FromCoordinator wire;
  ToWire(message, &wire);
  grpc::ByteBuffer bytes;
  bool owned = false;
  HOLDFAST_CHECK(grpc::SerializationTraits<v1::FromCoordinator>::Serialize(wire, &bytes, &owned).ok());
  return bytes;
}

void ControlStream::Send(const grpc::ByteBuffer& bytes) {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (queue_.size() >= limits_.max_queued_messages || queued_bytes_ + bytes.Length() > limits_.max_queued_bytes) {
    CutWith({grpc::StatusCode::RESOURCE_EXHAUSTED, "the worker does not read its messages"},
            absl::StrCat("does not read: ", queue_.size(), " messages of ", queued_bytes_, " bytes wait for it"));
    context_->TryCancel();  // the write in flight would wait for the reader
    return;
  }
  queued_bytes_ += bytes.Length();
  queue_.push_back(bytes);
  WriteNext();
}

void ControlStream::WriteNext() {
  if (writing_ || queue_.empty() || finished_) return;
  writing_ = true;
  StartWrite(&queue_.front());
}

void ControlStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queued_bytes_ -= queue_.front().Length();
  queue_.pop_front();
  if (!ok) return CutWith({grpc::StatusCode::UNAVAILABLE, "write failed"}, "the connection was lost");
  WriteNext();
  FinishIfIdle();
}

void ControlStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  CutWith(grpc::Status::CANCELLED, "the connection was lost");
}

void ControlStream::CloseAfterWrites(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  EndWith(grpc::Status::OK, cause);
}

void ControlStream::Cut(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  CutWith({grpc::StatusCode::UNAVAILABLE, cause}, cause);
  if (!done_) context_->TryCancel();
}

void ControlStream::CheckDeadlines(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  if (!has_received_ && !ending_ && now > began_ + limits_.first_message_timeout) {
    CutWith({grpc::StatusCode::DEADLINE_EXCEEDED, "no message came"}, "silent after connecting");
  } else if (ending_ && now > end_deadline_) {
    queue_.erase(queue_.begin() + (writing_ ? 1 : 0), queue_.end());
    context_->TryCancel();
  }
}

void ControlStream::EndWith(const grpc::Status& status, const std::string& cause) {
  if (!ending_) {
    ending_ = true;
    status_ = status;
    cause_ = cause;
    end_deadline_ = std::chrono::steady_clock::now() + kTimeToEnd;
  }
  FinishIfIdle();
}

void ControlStream::CutWith(const grpc::Status& status, const std::string& cause) {
  queue_.erase(queue_.begin() + (writing_ ? 1 : 0), queue_.end());
  EndWith(status, cause);
}

void ControlStream::FinishIfIdle() {
  if (!ending_ || finished_ || writing_ || !queue_.empty()) return;
  finished_ = true;
  Finish(status_);
}

void ControlStream::OnDone() {
  std::shared_ptr<ControlStream> self;  // lives until the end of this function
  bool has_received;
  std::string cause;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    self = std::move(self_);
    has_received = has_received_;
    cause = cause_;
  }
  owner_->OnStreamDone(id_, has_received, cause);
}

}  // namespace holdfast
