#include "tools/training_session.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/str_split.h"
#include "elastic/agent/agent.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/host.h"
#include "framework/base/open_files.h"
#include "framework/base/status.h"
#include "framework/comm/cuda/nccl_communicator.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/tensor/cuda_device.h"
#include "tools/checkpoint_storage.h"
#include "tools/command.h"
#include "tools/data_files.h"
#include "tools/memory_estimate.h"
#include "tools/session.h"
#include "xxhash.h"

namespace holdfast {
namespace {

absl::Status OpenData(const Config& config, TrainingSession& session) {
  const int64_t sequence = config.batch.sequence_length;
  Places places(DataPlaces(config.data));
  const DatasetOptions options{.files = &places, .on_scan = ScanNotice()};
  HF_ASSIGN_OR_RETURN(session.training, Dataset::Open(config.data.train, sequence, config.model.vocab_size, options));
  if (!config.data.validation.empty()) {
    HF_ASSIGN_OR_RETURN(session.validation,
                        Dataset::Open(config.data.validation, sequence, config.model.vocab_size, options));
  }
  HF_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(config.data.tokenizer));
  return CheckVocabulary(*tokenizer, config.data.tokenizer, config.model.vocab_size);
}

uint64_t DataDigest(const TrainingSession& session) {
  const std::array<uint64_t, 2> digests{session.training->digest(),
                                        session.validation.has_value() ? session.validation->digest() : 0};
  return XXH3_64bits(digests.data(), sizeof(digests));
}

/// New for every process that ever joins a run; an agent tells it to its workers.
uint64_t NewIncarnation() {
  if (const char* given = std::getenv(kIncarnationVariable)) return std::strtoull(given, nullptr, 10);
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) >> 1 | 1;  // room to count up from, and not 0
}

/// A test's knob (see WorkerParts): of all workers, or of the one that is named.
std::chrono::milliseconds SlowdownFromEnvironment(const std::string& worker) {
  const char* text = std::getenv("HOLDFAST_TEST_SLOWDOWN_MS");
  const char* only = std::getenv("HOLDFAST_TEST_SLOW_WORKER");
  if (text == nullptr || (only != nullptr && worker != only)) return {};
  return std::chrono::milliseconds(std::atoll(text));
}

/// Another one: "owner@7" or "mirror@7" flips a bit of such a chunk after step 7, in the worker that is named.
BitFlip FlipFromEnvironment(const std::string& worker) {
  const char* text = std::getenv("HOLDFAST_TEST_FLIP_BIT");
  const char* only = std::getenv("HOLDFAST_TEST_FLIP_WORKER");
  if (text == nullptr || only == nullptr || worker != only) return {};
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  return {.after_step = std::atoll(parts.second.c_str()), .in_mirror = parts.first == "mirror"};
}

/// Ends a worker whose GPU cannot be made to leave memory alone. Its agent starts it again.
[[noreturn]] void EndStuck(const std::string& why) {
  std::fprintf(stderr, "error: %s; this worker ends itself\n", why.c_str());
  std::_Exit(kExitFailure);
}

}  // namespace

absl::Status CheckGpus(const Config& config, int64_t workers_here) {
  const int gpus = NumCudaDevices();
  if (config.parallel.transport != Transport::kNccl || workers_here <= gpus) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("parallel.transport: nccl needs a GPU for each worker: ", workers_here, " workers here, ", gpus,
                   " GPUs; start fewer, or use parallel.transport: gloo"));
}

absl::StatusOr<std::unique_ptr<TrainingSession>> OpenTrainingSession(const Config& config, int64_t workers_here,
                                                                     bool check_only, int64_t local_index) {
  auto session = std::make_unique<TrainingSession>();
  HF_RETURN_IF_ERROR(OpenData(config, *session));
  session->gpu = GpuOf(local_index);
  session->workers_on_gpu = 0;
  for (int64_t i = 0; i < workers_here; ++i) session->workers_on_gpu += GpuOf(i) == session->gpu ? 1 : 0;
  HF_ASSIGN_OR_RETURN(session->device, MakeDevice(config.train, local_index));
  HF_RETURN_IF_ERROR(CheckGpus(config, workers_here));
  HF_ASSIGN_OR_RETURN(session->model, MakeModel(config, *session->device));
  HF_ASSIGN_OR_RETURN(TrainerOptions options, MakeTrainerOptions(config, *session->model));
  HF_RETURN_IF_ERROR(CheckHostMemory(
      EstimateMemory(config, session->model->layout(), options.arena_bytes, options.training_schedule), workers_here));
  if (check_only) return session;
  HF_ASSIGN_OR_RETURN(session->trainer, Trainer::Create(*session->model, *session->device, std::move(options)));
  return session;
}

Worker::Exit RunWorker(const Config& config, const RunDirectory& directory, const WorkerIdentity& identity,
                       TrainingSession& session, ControlLink& link, const StopSignal* stop_signal,
                       const WorkerPeers& peers) {
  RaiseOpenFileLimit();  // every peer is three to five of them
  const bool bf16 = config.train.compute_dtype == ComputeDType::kBF16;
  RunDigests digests = DigestsOf(config);
  digests.data = DataDigest(session);
  // Alone, or over MPI, a worker is reached by nobody else.
  std::unique_ptr<PeerProbe> probe;
  if (peers.connect == nullptr && !identity.host.empty()) {
    auto listening = PeerProbe::Listen(identity.host);
    if (listening.ok()) {
      probe = *std::move(listening);
    } else {
      std::fprintf(stderr, "warning: peers cannot probe this worker: %s\n",
                   std::string(listening.status().message()).c_str());
    }
  }
  const SessionShell::Options options{
      .member = {.id = {identity.name, NewIncarnation()},
                 .node = identity.node,
                 .host = HostName(),
                 .pid = getpid(),
                 .peak_flops = bf16 ? session.device->peak_bf16_flops() / std::max(1, session.workers_on_gpu) : 0,
                 .probe_address = probe == nullptr ? "" : probe->address()},
      .digests = digests,
      .total_steps = config.train.steps,
      .heartbeat_interval = std::chrono::milliseconds(config.elastic.heartbeat_interval_ms),
      .kill_timeout = std::chrono::milliseconds(config.elastic.kill_timeout_ms)};
  SessionShell shell(options, link, session.trainer->progress(), std::move(probe));
  Checkpointer checkpointer({.open_storage = [&] { return OpenClaimedStorage(config.checkpoint, directory.root()); },
                             .config = &config.checkpoint,
                             .layout = &session.trainer->state_layout(),
                             .progress = &session.trainer->progress(),
                             .send = [&](const SavedMessage& saved) { shell.Send(saved); }});
  WorkerParts parts;
  parts.config = &config;
  parts.trainer = session.trainer.get();
  parts.training = &*session.training;
  parts.validation = session.validation.has_value() ? &*session.validation : nullptr;
  parts.shell = &shell;
  parts.checkpointer = &checkpointer;
  parts.connect = peers.connect;
  if (parts.connect == nullptr) {
    parts.connect = [&](const World& world, int rank, const auto& groups, std::stop_token stop, Deadline deadline) {
      if (config.parallel.transport == Transport::kNccl) {
        return ConnectNccl({.device = session.gpu, .on_stuck = EndStuck}, rank, world.size(), world.generation, groups,
                           shell, std::move(stop), deadline);
      }
      return ConnectGloo({.host = identity.host}, rank, world.size(), world.generation, groups, shell, std::move(stop),
                         deadline);
    };
  }
  parts.on_peer_failure = peers.on_failure;
  parts.slowdown = SlowdownFromEnvironment(identity.name);
  parts.flip = FlipFromEnvironment(identity.name);
  parts.save_model = [&](const ReadWeightsFn& read) {
    return SaveWeights(directory.model(), config, session.model->layout(), read);
  };
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
  if (stop_signal != nullptr) {
    on_stop.emplace(stop_signal->token(), [&] { shell.AskForStop(stop_signal->received()); });
  }
  return Worker(parts).Run();
}

}  // namespace holdfast
