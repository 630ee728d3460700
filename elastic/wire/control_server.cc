#include "elastic/wire/control_server.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/wire/address.h"
#include "elastic/wire/control_stream.h"
#include "elastic/wire/convert.h"
#include "elastic/wire/credentials.h"
#include "elastic/wire/door.h"
#include "elastic/wire/holdfast.grpc.pb.h"
#include "elastic/wire/token.h"
#include "framework/base/log.h"
#include "framework/base/rare_log.h"
#include "framework/base/status.h"
#include "framework/base/thread_limits.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kSweepInterval(100);
constexpr std::chrono::seconds kRefusalInterval(10);  // between lines of the log
constexpr int kIdleConnectionTimeoutMs = 30000;       // of a connection without a stream
constexpr int kMaxStreamsPerConnection = 16;          // ours use one, and one for status
constexpr int kMinPingIntervalMs = 500;

// Streams carry plain bytes, so that those of one message can go to many; the status is as it was generated.
using Service =
    v1::Control::WithRawCallbackMethod_Session<v1::Control::WithCallbackMethod_Status<v1::Control::Service>>;
using ServerStream = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

using StatusStream = grpc::ServerReadReactor<v1::StatusRequest>;

// Ends before anything of it is read.
template <class Stream>
class EndedStream final : public Stream {
 public:
  explicit EndedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};
using RefusedStream = EndedStream<ServerStream>;

absl::StatusOr<ListenAddress> CheckedAddress(const ControlServerOptions& options) {
  ASSIGN_OR_RETURN(ListenAddress address, ResolveListenAddress(options.address));
  if (!address.loopback && options.token.empty() && !options.tls.enabled()) {
    return absl::InvalidArgumentError(
        absl::StrCat("refusing to listen on ", address.Text(),
                     ", which other machines can reach, without a token file or mutual TLS"));
  }
  if (options.token.size() > kMaxTokenBytes) return absl::InvalidArgumentError("the token is too long");
  return address;
}

}  // namespace

class ControlServer::Impl final : public StreamOwner, public Service {
 public:
  Impl(const ControlServerOptions& options, ControlHandler* handler) : options_(options), handler_(handler) {}
  ~Impl() override { Shutdown(std::chrono::milliseconds(0)); }

  absl::Status Listen();
  void SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message);
  void Close(Connection connection);
  void Shutdown(std::chrono::milliseconds grace);
  const std::string& address() const { return address_; }
  const std::string& reached_at() const { return reached_at_; }

 private:
  // Called by gRPC.
  ServerStream* Session(grpc::CallbackServerContext* context) override;
  StatusStream* Status(grpc::CallbackServerContext* context, v1::StatusReply* reply) override;
  // Called by streams.
  void Deliver(Connection from, WorkerMessage message) override;
  void OnStreamDone(Connection connection, bool has_received, const std::string& cause) override;

  grpc::Status Authorize(const grpc::CallbackServerContext& context);
  grpc::Status CheckToken(const grpc::CallbackServerContext& context);
  grpc::Status Refuse(const grpc::CallbackServerContext& context, const char* why);
  void SetLimits(grpc::ServerBuilder* builder) const;
  std::shared_ptr<ControlStream> Find(Connection connection);
  std::vector<std::shared_ptr<ControlStream>> AllStreams();
  void Sweep();

  const ControlServerOptions options_;
  ControlHandler* const handler_;
  std::string address_, reached_at_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Door> door_;  // outlives the server, whose calls it lets in
  std::unique_ptr<grpc::Server> server_;

  std::mutex handler_mutex_;  // taken before mutex_, never after it
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Connection, std::shared_ptr<ControlStream>> streams_;
  Connection last_connection_ = 0;
  RareLog refusals_{kRefusalInterval};
  bool stopping_ = false, sweeping_ = true;
  std::thread sweeper_;
};

void ControlServer::Impl::SetLimits(grpc::ServerBuilder* builder) const {
  const int keepalive_ms = static_cast<int>(options_.keepalive.count());
  builder->SetMaxReceiveMessageSize(static_cast<int>(kMaxIncomingBytes));
  builder->SetMaxSendMessageSize(static_cast<int>(kMaxOutgoingBytes));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(options_.handshake_timeout.count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
}

absl::Status ControlServer::Impl::Listen() {
  ASSIGN_OR_RETURN(ListenAddress address, CheckedAddress(options_));
  ASSIGN_OR_RETURN(const auto credentials, ServerCredentialsFrom(options_.tls));
  ASSIGN_OR_RETURN(Listener listener, ListenAt(address));
  address.port = PortOf(listener.address);
  address_ = address.Text();
  reached_at_ = options_.advertise.empty() ? ReachableAddress(address) : HostAndPort(options_.advertise, address.port);
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    const std::string what = absl::StrCat("cannot listen on ", address_);
    if (!options_.tls.enabled()) return absl::UnavailableError(what);
    return absl::InvalidArgumentError(absl::StrCat(what, ": are the certificate, its key and the authority valid?"));
  }
  const DoorOptions limits{.patience = 2 * options_.handshake_timeout,
                           .max_strangers = options_.max_strangers,
                           .has_tls = options_.tls.enabled()};
  ASSIGN_OR_RETURN(door_, Door::Make(std::move(listener), limits, [this](FileDescriptor connection) {
                     grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters accepted;
                     accepted.fd = connection.Release();
                     acceptor_->HandleNewConnection(&accepted);
                   }));
  door_->Open();
  sweeper_ = std::thread([this] { Sweep(); });
  return absl::OkStatus();
}

// Ours try once a second, a stranger as fast as it can.
grpc::Status ControlServer::Impl::Refuse(const grpc::CallbackServerContext& context, const char* why) {
  const std::lock_guard lock(mutex_);
  const auto line = refusals_.Line(std::chrono::steady_clock::now().time_since_epoch(),
                                   absl::StrCat("refused ", context.peer(), ": ", why));
  if (line.has_value()) LogWarning(*line);
  return {grpc::StatusCode::UNAUTHENTICATED, why};
}

grpc::Status ControlServer::Impl::Authorize(const grpc::CallbackServerContext& context) {
  grpc::Status status = CheckToken(context);
  if (status.ok()) door_->LetIn(context.peer());
  return status;
}

// With mutual TLS a call comes over a connection whose certificate was checked.
grpc::Status ControlServer::Impl::CheckToken(const grpc::CallbackServerContext& context) {
  if (options_.token.empty()) return grpc::Status::OK;
  const auto given = context.client_metadata().find("authorization");
  if (given == context.client_metadata().end()) {
    return Refuse(context, "this coordinator requires a token: pass --token-file");
  }
  const absl::string_view header(given->second.data(), given->second.size());
  if (!TokensEqual(header, AuthorizationHeader(options_.token))) {
    return Refuse(context, "the token differs from the coordinator's: copy its token file");
  }
  return grpc::Status::OK;
}

ServerStream* ControlServer::Impl::Session(grpc::CallbackServerContext* context) {
  if (const grpc::Status status = Authorize(*context); !status.ok()) return new RefusedStream(status);
  const std::lock_guard lock(mutex_);
  if (stopping_) return new RefusedStream({grpc::StatusCode::UNAVAILABLE, "the coordinator is stopping"});
  if (streams_.size() >= static_cast<size_t>(options_.max_streams)) {
    return new RefusedStream({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many connections"});
  }
  const StreamLimits limits{options_.first_message_timeout, options_.max_queued_bytes,
                            static_cast<size_t>(options_.max_queued_messages)};
  const auto stream = std::make_shared<ControlStream>(++last_connection_, context, limits, this);
  streams_.emplace(last_connection_, stream);
  stream->Begin(stream);  // under the lock: nobody can end what has not begun
  return stream.get();
}

StatusStream* ControlServer::Impl::Status(grpc::CallbackServerContext* context, v1::StatusReply* reply) {
  const grpc::Status status = Authorize(*context);
  if (status.ok()) ToWire(handler_->StatusNow(), reply);
  return new EndedStream<StatusStream>(status);
}

void ControlServer::Impl::Deliver(Connection from, WorkerMessage message) {
  const std::lock_guard lock(handler_mutex_);
  handler_->OnMessage(from, std::move(message));
}

void ControlServer::Impl::OnStreamDone(Connection connection, bool has_received, const std::string& cause) {
  if (has_received) {
    const std::lock_guard lock(handler_mutex_);
    handler_->OnDisconnect(connection, cause);
  }
  const std::lock_guard lock(mutex_);
  streams_.erase(connection);
  changed_.notify_all();
}

std::shared_ptr<ControlStream> ControlServer::Impl::Find(Connection connection) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(connection);
  return found == streams_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<ControlStream>> ControlServer::Impl::AllStreams() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ControlStream>> all;
  all.reserve(streams_.size());
  for (const auto& entry : streams_) all.push_back(entry.second);
  return all;
}

void ControlServer::Impl::SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) {
  const grpc::ByteBuffer bytes = ControlStream::BytesOf(message);
  for (const Connection connection : to) {
    if (const std::shared_ptr<ControlStream> stream = Find(connection)) stream->Send(bytes);
  }
}

void ControlServer::Impl::Close(Connection connection) {
  if (const std::shared_ptr<ControlStream> stream = Find(connection))
    stream->CloseAfterWrites("closed by the coordinator");
}

void ControlServer::Impl::Sweep() {
  std::unique_lock lock(mutex_);
  while (sweeping_) {
    changed_.wait_for(lock, kSweepInterval, [this] { return !sweeping_; });
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& stream : AllStreams()) stream->CheckDeadlines(now);
    lock.lock();
  }
}

void ControlServer::Impl::Shutdown(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const auto& stream : AllStreams()) stream->CloseAfterWrites("the coordinator is stopping");
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, grace, [this] { return streams_.empty(); });
  }
  for (const auto& stream : AllStreams()) stream->Cut("the coordinator is stopping");
  if (door_ != nullptr) door_->Close();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return streams_.empty(); });
    sweeping_ = false;
    changed_.notify_all();
  }
  if (sweeper_.joinable()) sweeper_.join();
}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const ControlServerOptions& options,
                                                                    ControlHandler* handler) {
  RETURN_IF_ERROR(CheckThreadsStart(ThreadsOfGrpc()));
  auto impl = std::make_unique<Impl>(options, handler);
  RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

absl::Status ControlServer::Check(const ControlServerOptions& options) {
  ASSIGN_OR_RETURN(const ListenAddress address, CheckedAddress(options));
  RETURN_IF_ERROR(ServerCredentialsFrom(options.tls).status());
  return ListenAt(address).status();
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

const std::string& ControlServer::address() const { return impl_->address(); }
const std::string& ControlServer::reached_at() const { return impl_->reached_at(); }
void ControlServer::Send(Connection to, const CoordinatorMessage& message) { impl_->SendToAll({to}, message); }
void ControlServer::SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) {
  impl_->SendToAll(to, message);
}
void ControlServer::Close(Connection connection) { impl_->Close(connection); }
void ControlServer::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace holdfast
