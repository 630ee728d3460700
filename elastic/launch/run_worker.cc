#include "elastic/launch/run_worker.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "checkpoint/place/checkpoint_place.h"
#include "elastic/agent/agent.h"
#include "elastic/coordinator/run_digests.h"
#include "elastic/launch/current_world.h"
#include "elastic/launch/test_strike.h"
#include "framework/base/host.h"
#include "framework/base/log.h"
#include "framework/base/open_files.h"
#include "framework/base/random_id.h"
#include "framework/comm/cuda/nccl_communicator.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/saved_weights.h"

namespace holdfast {
namespace {

/// New for every process that ever joins a run; an agent tells it to its workers.
uint64_t NewIncarnation() {
  if (const char* given = std::getenv(kIncarnationVariable)) return std::strtoull(given, nullptr, 10);
  return RandomId();
}

/// A test's knob (see WorkerDependencies): of all workers, or of the one that is named.
std::chrono::milliseconds SlowdownFromEnvironment(const std::string& worker) {
  const char* text = std::getenv("HOLDFAST_TEST_SLOWDOWN_MS");
  const char* only = std::getenv("HOLDFAST_TEST_SLOW_WORKER");
  if (text == nullptr || (only != nullptr && worker != only)) return {};
  return std::chrono::milliseconds(std::atoll(text));
}

/// Another one: "owner@7", "mirror@7" or "weights@7" flips bits of such a chunk after step 7, in the worker that is
/// named.
BitFlip FlipFromEnvironment(const std::string& worker) {
  const char* text = std::getenv("HOLDFAST_TEST_FLIP_BIT");
  const char* only = std::getenv("HOLDFAST_TEST_FLIP_WORKER");
  if (text == nullptr || only == nullptr || worker != only) return {};
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  using Where = BitFlip::Where;
  return {.after_step = std::atoll(parts.second.c_str()),
          .where = parts.first == "mirror"    ? Where::kMirror
                   : parts.first == "weights" ? Where::kWeights
                                              : Where::kOwner};
}

/// Ends a worker whose GPU cannot be made to leave memory alone, or is lost. Its agent starts it again.
[[noreturn]] void EndStuck(const std::string& why) {
  LogError(why, "; this worker exits");
  std::_Exit(EXIT_FAILURE);
}

/// Where other workers try whether they reach this one; null if there is no such place.
std::unique_ptr<PeerProbe> ListenForProbes(const std::string& host) {
  if (host.empty()) return nullptr;
  auto listening = PeerProbe::Listen(host);
  if (listening.ok()) return *std::move(listening);
  LogWarning("peers cannot probe this worker: ", listening.status().message());
  return nullptr;
}

/// Model FLOPs utilisation counts in these; 0 = unknown.
double PeakFlops(const Config& config, const TrainingRuntime& runtime) {
  if (config.train.compute_dtype != ComputeDType::kBF16) return 0;
  return runtime.device->peak_bf16_flops() / WorkersOnGpuOf(runtime.slot);
}

SessionShell::Options ShellOptions(const Config& config, const WorkerIdentity& identity, const TrainingRuntime& runtime,
                                   const PeerProbe* probe) {
  RunDigests digests = DigestsOf(config, runtime.device->arithmetic());
  digests.data = runtime.data.digest();
  digests.tokens = runtime.data.token_digest();
  return {.member = {.id = {identity.name, NewIncarnation()},
                     .node = identity.node,
                     .host = HostName(),
                     .pid = getpid(),
                     .peak_flops = PeakFlops(config, runtime),
                     .probe_address = probe == nullptr ? "" : probe->address()},
          .digests = digests,
          .total_steps = config.train.steps,
          .run = identity.run,
          .heartbeat_interval = std::chrono::milliseconds(config.elastic.heartbeat_interval_ms),
          .kill_timeout = std::chrono::milliseconds(config.elastic.kill_timeout_ms),
          .coordinator_timeout = std::chrono::milliseconds(config.elastic.coordinator_timeout_ms),
          .is_alone = identity.is_alone};
}

/// As `parallel` says; `shell` carries the addresses.
ConnectFn ConnectBy(const ParallelConfig& parallel, const std::string& host, int gpu, SessionShell& shell) {
  return [transport = parallel.transport, encrypt = parallel.encrypt, host, gpu, &shell](
             const World& world, int rank, const auto& groups, std::stop_token stop, Deadline deadline) {
    if (transport == Transport::kNccl) {
      return ConnectNccl({.device = gpu, .on_stuck = EndStuck}, rank, world.size(), world.generation, groups, shell,
                         std::move(stop), deadline);
    }
    return ConnectGloo({.host = host, .encrypt = encrypt}, rank, world.size(), world.generation, groups, shell,
                       std::move(stop), deadline);
  };
}

}  // namespace

Worker::Exit RunWorker(const Config& config, const RunDirectory& directory, const WorkerIdentity& identity,
                       TrainingRuntime& runtime, ControlLink& link, const StopSignal* stop_signal,
                       const WorkerPeers& peers) {
  RaiseOpenFileLimit();  // every peer is three to five of them
  Trainer& trainer = *runtime.trainer;
  const ParameterLayout& layout = runtime.model->layout();
  // With a transport of its own it is reached by nobody else.
  std::unique_ptr<PeerProbe> probe = peers.connect == nullptr ? ListenForProbes(identity.host) : nullptr;
  const SessionShell::Options options = ShellOptions(config, identity, runtime, probe.get());
  SessionShell shell(options, link, trainer.progress(), std::move(probe));
  const auto open_storage = [&](const std::stop_token& stop) {
    return OpenClaimedStorage(config.checkpoint, directory.root(), stop);
  };
  Checkpointer checkpointer({.open_storage = open_storage,
                             .config = &config.checkpoint,
                             .layout = &trainer.state_layout(),
                             .progress = &trainer.progress(),
                             .send = [&](const SavedMessage& saved) { shell.Send(saved); }});
  WorkerDependencies dependencies;
  dependencies.config = &config;
  dependencies.trainer = &trainer;
  dependencies.training = &runtime.data.training;
  dependencies.validation = runtime.data.validation.has_value() ? &*runtime.data.validation : nullptr;
  dependencies.shell = &shell;
  dependencies.checkpointer = &checkpointer;
  dependencies.connect = peers.connect != nullptr
                             ? peers.connect
                             : ConnectBy(config.parallel, identity.host, GpuOf(runtime.slot.local_index), shell);
  dependencies.connects_alone = peers.connects_alone;
  dependencies.on_peer_failure = peers.on_failure;
  dependencies.slowdown = SlowdownFromEnvironment(identity.name);
  dependencies.flip = FlipFromEnvironment(identity.name);
  dependencies.wrap_parts = [name = identity.name](std::unique_ptr<Communicator> parts) {
    return StruckByEnvironment(std::move(parts), name);
  };
  dependencies.save_model = [&](const ReadWeightsFn& read, uint64_t generation) {
    const auto may_replace = [&] { return CheckIsCurrent(directory, identity.run, generation); };
    if (config.lora.rank > 0) return SaveAdapter(directory.model(), config, layout, read, FileDType::kF32, may_replace);
    return SaveWeights(directory.model(), config, layout, read, may_replace);
  };
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
  if (stop_signal != nullptr) {
    on_stop.emplace(stop_signal->token(), [&] { shell.AskForStop(stop_signal->received()); });
  }
  return Worker(dependencies).Run();
}

}  // namespace holdfast
