#include "elastic/wire/client_stream.h"

#include <utility>

#include "elastic/wire/convert.h"
#include "elastic/wire/token.h"

namespace holdfast {

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

ClientStream::ClientStream(const ControlClientOptions& options, std::shared_ptr<grpc::Channel> channel,
                           ClientHandler* handler)
    : max_queued_bytes_(options.max_queued_bytes),
      handler_(handler),
      channel_(std::move(channel)),
      stub_(v1::Control::NewStub(channel_)) {
  if (!options.token.empty()) context_.AddMetadata("authorization", AuthorizationHeader(options.token));
}

void ClientStream::Begin() {
  stub_->async()->Session(&context_, this);
  AddHold();
  StartCall();
}

void ClientStream::OnReadInitialMetadataDone(bool ok) {
  // A refusal is an answer, too; only a coordinator that lets us in sends the mark.
  const bool let_in = ok && context_.GetServerInitialMetadata().count(kSessionMark) > 0;
  {
    const std::lock_guard lock(mutex_);
    if (!let_in || abandoned_) return EndWrites();
    connected_ = true;
    changed_.notify_all();
  }
  handler_->OnConnected();
  StartRead(&incoming_);
}

void ClientStream::OnReadDone(bool ok) {
  if (!ok) {
    const std::lock_guard lock(mutex_);
    return EndWrites();
  }
  absl::StatusOr<CoordinatorMessage> message = FromWire(incoming_);
  if (!message.ok()) {
    const std::lock_guard lock(mutex_);
    CancelWith(message.status());
    return EndWrites();
  }
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return EndWrites();
  }
  ++received_;
  handler_->OnMessage(*std::move(message));
  StartRead(&incoming_);
}

bool ClientStream::Send(const WorkerMessage& message) {
  Outgoing outgoing;
  ToWire(message, &outgoing.message);
  outgoing.bytes = outgoing.message.ByteSizeLong();
  const std::lock_guard lock(mutex_);
  if (!connected_ || !holding_ || closing_) return false;
  if (queued_bytes_ + outgoing.bytes > max_queued_bytes_) {
    CancelWith(absl::ResourceExhaustedError("the coordinator does not read its messages"));
    return false;
  }
  queued_bytes_ += outgoing.bytes;
  queue_.push_back(std::move(outgoing));
  WriteNext();
  return true;
}

void ClientStream::WriteNext() {
  if (writing_ || !holding_ || queue_.empty()) return;
  writing_ = true;
  StartWrite(&queue_.front().message);
}

void ClientStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queued_bytes_ -= queue_.front().bytes;
  queue_.pop_front();
  if (!ok) return EndWrites();
  if (queue_.empty() && closing_ && holding_) {
    StartWritesDone();
    return EndWrites();
  }
  WriteNext();
}

void ClientStream::CloseAfterWrites() {
  const std::lock_guard lock(mutex_);
  if (closing_ || !holding_) return;
  closing_ = true;
  if (writing_ || !queue_.empty()) return;
  StartWritesDone();
  EndWrites();
}

void ClientStream::Cancel(const absl::Status& reason) {
  const std::lock_guard lock(mutex_);
  CancelWith(reason);
}

void ClientStream::CancelWith(const absl::Status& reason) {
  if (reason_.ok()) reason_ = reason;
  if (done_) return;
  if (!cancelled_at_.has_value()) cancelled_at_ = std::chrono::steady_clock::now();
  context_.TryCancel();
}

void ClientStream::EndWrites() {
  if (!holding_) return;
  holding_ = false;
  RemoveHold();
}

void ClientStream::OnDone(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  if (reason_.ok()) reason_ = FromGrpc(status);
  if (reason_.ok()) reason_ = absl::UnavailableError("the coordinator closed the connection");
  changed_.notify_all();
}

bool ClientStream::WaitUntilConnectedOrDone(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return connected_ || done_; });
}

bool ClientStream::WaitUntilDone(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return done_; });
}

std::chrono::nanoseconds ClientStream::OverdueFor() {
  const std::lock_guard lock(mutex_);
  if (done_ || !cancelled_at_.has_value()) return std::chrono::nanoseconds(0);
  return std::chrono::steady_clock::now() - *cancelled_at_;
}

void ClientStream::Abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

bool ClientStream::was_connected() {
  const std::lock_guard lock(mutex_);
  return connected_;
}

absl::Status ClientStream::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace holdfast
