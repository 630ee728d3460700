#include "elastic/wire/grpc_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "elastic/wire/address.h"
#include "elastic/wire/coordinator_addresses.h"
#include "elastic/wire/credentials.h"
#include "elastic/wire/token.h"
#include "elastic/wire/without_files.h"
#include "framework/base/log.h"
#include "framework/base/rare_log.h"
#include "framework/base/status.h"
#include "framework/base/thread_limits.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kClientGoodbye{1000};
constexpr std::chrono::seconds kLogInterval{30}, kPatience{5};  // of lines about what goes on and on
constexpr std::chrono::minutes kLongestLogInterval{60};
constexpr int kOwnThreads = 4;  // of a link, and of who uses one, started beside those of gRPC

WithoutFiles::Instant Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::string Absolute(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).string();
}

class GrpcLink final : public ControlLink, public ClientHandler {
 public:
  GrpcLink(ControlClientOptions options, std::chrono::milliseconds counted_on)
      : options_(std::move(options)), without_files_(Now(), counted_on) {}

  void Start(ControlLinkHandler& handler) override {
    handler_ = &handler;
    const std::lock_guard lock(mutex_);
    absl::StatusOr<std::unique_ptr<ControlClient>> client = ControlClient::Start(options_, this);
    if (client.ok()) {
      client_ = std::move(*client);
    } else {
      LogError(client.status().message());
    }
  }

  void Send(const WorkerMessage& message) override {
    if (ControlClient* client = Client()) client->Send(message);
  }

  void Stop() override {
    if (ControlClient* client = Client()) client->Stop(kClientGoodbye);
  }

  void OnConnected() override {
    Client();  // Start may not have returned yet
    refusals_.Reset();
    failures_.Reset();
    LogDebug("connected to the coordinator at ", options_.address);
    handler_->OnConnected();
  }
  void OnMessage(CoordinatorMessage message) override { handler_->OnMessage(message); }
  void OnDisconnected(const absl::Status& reason) override {
    without_files_.Disconnected(Now());
    if (absl::IsInvalidArgument(reason)) {  // of either side; it comes again with every connection
      const std::optional<std::string> line = LineOf(not_understood_, reason);
      if (line.has_value()) LogError("the coordinator and this process do not understand each other: ", *line);
    }
    LogDebug("lost the connection to the coordinator: ", reason.message());
    handler_->OnDisconnected(std::string(reason.message()));
  }
  void OnConnectFailed(const absl::Status& reason) override {
    ExitWithoutFiles();
    const bool is_refused = absl::IsUnauthenticated(reason);
    const std::optional<std::string> line = LineOf(is_refused ? refusals_ : failures_, reason);
    if (line.has_value() && is_refused) LogError("coordinator rejected authentication: ", *line);
    if (line.has_value() && !is_refused) LogWarning("no connection yet, retrying: ", *line);
  }
  // Whoever waits for this process would wait for ever.
  void OnStuck(const absl::Status& reason) override {
    LogError(reason.message(), "; this process exits");
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
  }

 private:
  void ExitWithoutFiles() {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int error = file < 0 ? errno : 0;
    if (file >= 0) close(file);
    if (without_files_.ConnectFailed(Now(), error)) OnStuck(ErrnoToStatus(error, "a connection to the coordinator"));
  }
  static std::optional<std::string> LineOf(RareLog& log, const absl::Status& reason) {
    return log.Line(Now(), reason.message());
  }
  ControlClient* Client() {
    const std::lock_guard lock(mutex_);
    return client_.get();
  }

  ControlClientOptions options_;
  ControlLinkHandler* handler_ = nullptr;
  std::mutex mutex_;
  std::unique_ptr<ControlClient> client_;
  // Of the client's thread:
  WithoutFiles without_files_;
  RareLog refusals_{kLogInterval, std::chrono::seconds(0), kLongestLogInterval};
  RareLog not_understood_{kLogInterval, std::chrono::seconds(0), kLongestLogInterval};
  RareLog failures_{kLogInterval, kPatience, kLongestLogInterval};
};

}  // namespace

std::vector<std::string> ConnectionOptions::Arguments() const {
  std::vector<std::string> arguments;
  const auto add = [&](const char* option, const std::string& path) {
    if (!path.empty()) arguments.insert(arguments.end(), {option, Absolute(path)});
  };
  if (!lease.empty()) arguments.insert(arguments.end(), {"--lease", lease});
  add("--token-file", token_file);
  add("--tls-certificate", tls.certificate);
  add("--tls-key", tls.key);
  add("--tls-authority", tls.authority);
  return arguments;
}

absl::StatusOr<ControlClientOptions> ConnectionOptions::ClientOptions() const {
  for (const std::string& address : CoordinatorAddresses(coordinator).All()) {
    RETURN_IF_ERROR(SplitHostAndPort(WithDefaultPort(address)).status());  // gRPC takes port 65537 for 1
  }
  ControlClientOptions options;
  options.address = coordinator;
  options.address_file = address_file;
  options.find_leader = find_leader;
  options.tls = tls;
  options.token_file = token_file;
  if (!token_file.empty()) {
    ASSIGN_OR_RETURN(options.token, ReadTokenFile(token_file));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<ControlLink>> MakeControlLink(const ConnectionOptions& options) {
  ASSIGN_OR_RETURN(ControlClientOptions client, options.ClientOptions());
  RETURN_IF_ERROR(CheckThreadsStart(ThreadsOfGrpc() + kOwnThreads));
  RETURN_IF_ERROR(ClientCredentialsFrom(client.tls).status());  // that they can be read: later nobody would hear of it
  return std::make_unique<GrpcLink>(std::move(client), options.counted_on);
}

}  // namespace holdfast
