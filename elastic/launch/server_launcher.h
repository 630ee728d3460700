#pragma once
// A run whose workers are started elsewhere, by agents that connect to this process.

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "elastic/launch/launcher.h"
#include "elastic/wire/control_server.h"

namespace holdfast {

class ServerLauncher final : public Launcher {
 public:
  struct Options {
    std::string listen{};      // HOST:PORT
    std::string advertise{};   // the host by which others reach it; empty = see ReachableAddress
    std::string token_file{};  // empty = that of the run directory, made if it is not there
    TlsFiles tls{};
    std::string taken_over_from{};  // Turn::from
    bool hands_over = true;         // at SIGTERM
    std::function<void(const std::string& address)> on_listening = nullptr;
  };
  /// Whether this process can listen now as `options` say.
  static absl::Status CanListen(const Options& options);
  /// The model is planned on a CPU: this machine needs neither the device nor the memory of a worker. What is needed to
  /// listen is tried, so that a run that cannot begin costs no older one.
  static absl::StatusOr<std::unique_ptr<ServerLauncher>> Open(const Config& config, const RunDirectory& directory,
                                                              Options options, const std::stop_token& stop = {});

  /// On SIGTERM the run is left to a coordinator that stands by, if there is one and `hands_over`; other signals stop
  /// it.
  absl::StatusOr<CoordinatorShell::Outcome> Run(const PreparedRun& run, const StopSignal& stop) override;

 private:
  ServerLauncher(const Config& config, const RunDirectory& directory, TrainingOutline outline, Options options)
      : Launcher(config, directory, std::move(outline)), options_(std::move(options)) {}

  const Options options_;
};

}  // namespace holdfast
