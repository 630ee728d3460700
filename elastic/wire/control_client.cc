#include "elastic/wire/control_client.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elastic/wire/address.h"
#include "elastic/wire/client_stream.h"
#include "elastic/wire/convert.h"
#include "elastic/wire/credentials.h"
#include "elastic/wire/holdfast.grpc.pb.h"
#include "elastic/wire/token.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "framework/base/thread_limits.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

// Workers that lost their coordinator together should not come back in one instant.
constexpr double kLeastJitter = 0.7, kMaxJitter = 1.3;

// A channel for one attempt: gRPC's own waiting between attempts is then never in the way, and ours is the only one.
std::shared_ptr<grpc::Channel> MakeChannel(const ControlClientOptions& options, const std::string& address,
                                           const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxOutgoingBytes));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no connection shared with other clients of the process
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // a cluster's http_proxy is not meant for its own nodes
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(WithDefaultPort(address), credentials, arguments);
}

absl::Status Explain(const std::string& address, const absl::Status& reason) {
  return Annotate(reason, "coordinator " + address);
}

// What a server does in the words of gRPC that refuses a certificate, speaks TLS to a client that does not, or may have
// no more connections.
absl::Status WithAdvice(const ControlClientOptions& options, const absl::Status& reason) {
  const bool closed = absl::IsUnavailable(reason) && absl::StrContains(reason.message(), "Socket closed");
  if (!closed) return reason;
  return absl::UnavailableError(absl::StrCat(
      reason.message(), ": it ends, may open no more files (`ulimit -n`), or ",
      options.tls.enabled() ? "refuses this certificate: the coordinator's --tls-authority must have signed it"
                            : "asks for TLS (--tls-certificate, --tls-key, --tls-authority)"));
}

// Somebody may have replaced it. What is not whole at this moment is read the next time.
void ReadTokenAgain(ControlClientOptions* options) {
  if (options->token_file.empty()) return;
  absl::StatusOr<std::string> token = ReadTokenFile(options->token_file);
  if (token.ok()) options->token = *std::move(token);
}

// Where there are others, one that does not answer is not waited for as long.
constexpr std::chrono::milliseconds kPatienceWithOneOfSeveral{2000};

ControlClientOptions WithOthers(ControlClientOptions options) {
  if (CoordinatorAddresses(options.address).All().size() > 1) {
    options.connect_timeout = std::min(options.connect_timeout, kPatienceWithOneOfSeveral);
    options.keepalive = std::min(options.keepalive, kPatienceWithOneOfSeveral);
  }
  return options;
}

}  // namespace

class ControlClient::Impl {
 public:
  Impl(const ControlClientOptions& options, Credentials credentials, ClientHandler* handler)
      : options_(WithOthers(options)),
        credentials_(std::move(credentials)),
        handler_(handler),
        addresses_(options.address, options.address_file, options.find_leader),
        thread_([this] { Run(); }) {}
  ~Impl() { Stop(std::chrono::milliseconds(0)); }

  bool Send(const WorkerMessage& message);
  void Stop(std::chrono::milliseconds grace);

 private:
  void Run();
  bool RunStream(const std::string& address);
  bool WaitForItsEnd();
  void AbandonStream();
  void WaitBeforeNext(Clock::duration last_stream);

  ControlClientOptions options_;  // of the thread
  const Credentials credentials_;
  ClientHandler* const handler_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ClientStream> stream_;  // shared: Send may use it while the thread replaces it
  bool stopping_ = false;

  // Of the thread.
  CoordinatorAddresses addresses_;
  std::chrono::milliseconds backoff_ = options_.first_backoff;
  std::minstd_rand random_{std::random_device()()};
  std::thread thread_;  // last: it uses everything above
};

bool ControlClient::Impl::Send(const WorkerMessage& message) {
  std::shared_ptr<ClientStream> stream;
  {
    const std::lock_guard lock(mutex_);
    stream = stream_;
  }
  return stream != nullptr && stream->Send(message);
}

void ControlClient::Impl::Stop(std::chrono::milliseconds grace) {
  std::shared_ptr<ClientStream> stream;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stream = stream_;
    changed_.notify_all();
  }
  if (stream != nullptr) {
    stream->CloseAfterWrites();
    if (!stream->WaitUntilDone(Clock::now() + grace)) stream->Cancel(absl::CancelledError("stopped"));
  }
  if (thread_.joinable()) thread_.join();
}

void ControlClient::Impl::Run() {
  for (;;) {
    const std::string address = addresses_.Next();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      stream_ = std::make_shared<ClientStream>(options_, MakeChannel(options_, address, credentials_), handler_);
      stream_->Begin();
    }
    const Clock::time_point began = Clock::now();
    if (!RunStream(address)) return AbandonStream();
    WaitBeforeNext(Clock::now() - began);
  }
}

/// False: gRPC does not let go of it.
bool ControlClient::Impl::RunStream(const std::string& address) {
  // Only this thread replaces stream_, so reading it needs no lock here.
  if (!stream_->WaitUntilConnectedOrDone(Clock::now() + options_.connect_timeout)) {
    stream_->Cancel(absl::DeadlineExceededError("no connection in time"));
  }
  if (!WaitForItsEnd()) return false;
  if (stream_->was_connected()) {
    handler_->OnDisconnected(Explain(address, stream_->reason()));
  } else {
    handler_->OnConnectFailed(Explain(address, WithAdvice(options_, stream_->reason())));
    if (absl::IsUnauthenticated(stream_->reason())) ReadTokenAgain(&options_);
  }
  return true;
}

// A coordinator that is frozen or cut off does not say that another one leads the run. One that speaks leads it, so
// thousands of workers do not read a shared file while steps are committed.
bool ControlClient::Impl::WaitForItsEnd() {
  constexpr int kLeastLooks = 5;  // of a process that was frozen gRPC's threads are to have had their turn
  int looks = 0;
  int64_t received = 0;
  while (!stream_->WaitUntilDone(Clock::now() + options_.look_interval)) {
    if (stream_->OverdueFor() >= options_.grpc_patience && ++looks >= kLeastLooks) return false;
    const int64_t before = std::exchange(received, stream_->received());
    if (!addresses_.looks() || received != before || !addresses_.HasMoved()) continue;
    stream_->Cancel(absl::UnavailableError("another coordinator leads the run"));
  }
  return true;
}

void ControlClient::Impl::AbandonStream() {
  stream_->Abandon();
  new std::shared_ptr<ClientStream>(stream_);  // never freed: gRPC may use it yet
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
    stream_ = nullptr;
  }
  if (!stopping) {
    handler_->OnStuck(absl::FailedPreconditionError(absl::StrCat("gRPC does not answer: ", NoThreadText())));
  }
}

void ControlClient::Impl::WaitBeforeNext(Clock::duration last_stream) {
  // A coordinator that takes us in and throws us out again is not asked more often than one that is not there.
  if (stream_->was_connected() && last_stream >= options_.max_backoff) backoff_ = options_.first_backoff;
  const double jitter = std::uniform_real_distribution<double>(kLeastJitter, kMaxJitter)(random_);
  std::unique_lock lock(mutex_);
  stream_ = nullptr;
  changed_.wait_for(lock, backoff_ * jitter, [this] { return stopping_; });
  backoff_ = std::min(backoff_ * 2, options_.max_backoff);
}

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Start(const ControlClientOptions& options,
                                                                    ClientHandler* handler) {
  ASSIGN_OR_RETURN(Credentials credentials, ClientCredentialsFrom(options.tls));
  return std::unique_ptr<ControlClient>(
      new ControlClient(std::make_unique<Impl>(options, std::move(credentials), handler)));
}

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;
bool ControlClient::Send(const WorkerMessage& message) { return impl_->Send(message); }
void ControlClient::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }

namespace {

absl::StatusOr<RunStatus> FetchStatusOf(const std::string& address, const ControlClientOptions& options,
                                        const Credentials& credentials) {
  const auto stub = v1::Control::NewStub(MakeChannel(options, address, credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.connect_timeout);
  if (!options.token.empty()) context.AddMetadata("authorization", AuthorizationHeader(options.token));
  v1::StatusReply reply;
  const auto call = stub->Status(&context, &reply);
  call->WritesDone();
  const grpc::Status status = call->Finish();
  if (!status.ok()) return Explain(address, WithAdvice(options, FromGrpc(status)));
  return FromWire(reply);
}

}  // namespace

absl::StatusOr<RunStatus> FetchStatus(const ControlClientOptions& options) {
  ControlClientOptions now = options;
  ReadTokenAgain(&now);
  ASSIGN_OR_RETURN(const Credentials credentials, ClientCredentialsFrom(now.tls));
  absl::StatusOr<RunStatus> status = absl::InvalidArgumentError("no address of a coordinator is given");
  for (const std::string& address : CoordinatorAddresses(now.address, now.address_file, now.find_leader).All()) {
    status = FetchStatusOf(address, now, credentials);
    if (status.ok()) break;
  }
  return status;
}

}  // namespace holdfast
