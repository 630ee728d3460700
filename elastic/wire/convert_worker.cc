// Messages of workers and agents: to the wire and back, one pair of functions per message.

#include <cmath>

#include "elastic/wire/convert.h"
#include "elastic/wire/convert_fields.h"
#include "framework/base/clip_text.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

constexpr int kMaxSignal = 127;

void Fill(const JoinMessage& message, v1::ToCoordinator* wire) {
  v1::Join* join = wire->mutable_join();
  ToWire(message.member, join->mutable_member());
  ToWire(message.claim.world, join->mutable_claim()->mutable_world());
  join->mutable_claim()->set_committed_step(message.claim.committed_step);
  join->mutable_claim()->set_prepared_step(message.claim.prepared_step);
  ToWire(message.claim.prepared_world, join->mutable_claim()->mutable_prepared_world());
  ToWire(message.claim.entered_world, join->mutable_claim()->mutable_entered_world());
  join->set_config_digest(message.digests.config);
  join->set_data_digest(message.digests.data);
  join->set_token_digest(message.digests.tokens);
  join->set_arithmetic(message.digests.arithmetic);
  join->set_kernel_digest(message.digests.kernels);
  join->set_build(message.digests.build);
  for (const auto& [key, digest] : message.digests.keys) (*join->mutable_config_keys())[key] = digest;
  join->set_generation(message.generation);
  join->set_run(message.run);
}

absl::StatusOr<WorkerMessage> Read(const v1::Join& wire) {
  FieldCheck check("Join");
  JoinMessage message;
  message.member = MemberFromWire(wire.member(), &check);
  message.claim.world = WorldFromWire(wire.claim().world(), &check);
  message.claim.committed_step = check.Count(wire.claim().committed_step(), "claim.committed_step");
  message.claim.prepared_step = check.Count(wire.claim().prepared_step(), "claim.prepared_step");
  message.claim.prepared_world = WorldFromWire(wire.claim().prepared_world(), &check);
  message.claim.entered_world = WorldFromWire(wire.claim().entered_world(), &check);
  message.digests = {.config = wire.config_digest(),
                     .data = wire.data_digest(),
                     .tokens = wire.token_digest(),
                     .arithmetic = check.Text(wire.arithmetic(), kMaxNameBytes, "arithmetic"),
                     .kernels = wire.kernel_digest(),
                     .build = check.Text(wire.build(), kMaxNameBytes, "build"),
                     .keys = {}};
  if (check.Range(static_cast<int64_t>(wire.config_keys().size()), 0, kMaxConfigKeys, "config_keys") <=
      kMaxConfigKeys) {
    for (const auto& [key, digest] : wire.config_keys()) {
      message.digests.keys[check.Text(key, kMaxNameBytes, "config_keys")] = digest;
    }
  }
  message.generation = wire.generation();
  message.run = wire.run();
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const HeartbeatMessage& message, v1::ToCoordinator* wire) {
  v1::Heartbeat* heartbeat = wire->mutable_heartbeat();
  heartbeat->set_generation(message.generation);
  heartbeat->set_step(message.step);
  heartbeat->set_phase(ToWire(message.phase));
  heartbeat->set_progress(message.progress);
  heartbeat->set_bytes_loaded(message.bytes_loaded);
  heartbeat->set_bytes_to_load(message.bytes_to_load);
}

absl::StatusOr<WorkerMessage> Read(const v1::Heartbeat& wire) {
  FieldCheck check("Heartbeat");
  HeartbeatMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.phase = PhaseFromWire(wire.phase(), &check);
  message.progress = wire.progress();
  message.bytes_loaded = check.Count(wire.bytes_loaded(), "bytes_loaded");
  message.bytes_to_load = check.Count(wire.bytes_to_load(), "bytes_to_load");
  return check.Done<WorkerMessage>(message);
}

void Fill(const RendezvousMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_rendezvous()->set_generation(message.generation);
  wire->mutable_rendezvous()->set_blob(message.blob);
}

absl::StatusOr<WorkerMessage> Read(const v1::Rendezvous& wire) {
  FieldCheck check("Rendezvous");
  RendezvousMessage message;
  message.generation = wire.generation();
  message.blob = check.Text(wire.blob(), kMaxBlobBytes, "blob");
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const RecoveredMessage& message, v1::ToCoordinator* wire) {
  v1::Recovered* recovered = wire->mutable_recovered();
  recovered->set_generation(message.generation);
  recovered->set_abort_seconds(message.abort_seconds);
  recovered->set_rendezvous_seconds(message.rendezvous_seconds);
  recovered->set_transfer_seconds(message.transfer_seconds);
  recovered->set_bytes_received(message.bytes_received);
  recovered->set_mirror_bytes(message.mirror_bytes);
}

void Fill(const MirroredMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_mirrored()->set_generation(message.generation);
}

absl::StatusOr<WorkerMessage> Read(const v1::Mirrored& wire) { return MirroredMessage{wire.generation()}; }

absl::StatusOr<WorkerMessage> Read(const v1::Recovered& wire) {
  FieldCheck check("Recovered");
  RecoveredMessage message;
  message.generation = wire.generation();
  message.abort_seconds = check.MeasuredSeconds(wire.abort_seconds(), "abort_seconds");
  message.rendezvous_seconds = check.MeasuredSeconds(wire.rendezvous_seconds(), "rendezvous_seconds");
  message.transfer_seconds = check.MeasuredSeconds(wire.transfer_seconds(), "transfer_seconds");
  constexpr int64_t kMaxBytes = INT64_MAX / (2 * kMaxWorkers);  // both, of all members, are added
  message.bytes_received = check.Range(wire.bytes_received(), 0, kMaxBytes, "bytes_received");
  message.mirror_bytes = check.Range(wire.mirror_bytes(), 0, kMaxBytes, "mirror_bytes");
  return check.Done<WorkerMessage>(message);
}

void Fill(const VoteMessage& message, v1::ToCoordinator* wire) {
  v1::Vote* vote = wire->mutable_vote();
  vote->set_generation(message.generation);
  vote->set_step(message.step);
  vote->set_loss_bits(message.loss_bits);
  vote->set_grad_norm_bits(message.grad_norm_bits);
  vote->set_lr(message.lr);
  vote->set_compute_seconds(message.compute_seconds);
  vote->set_wait_seconds(message.wait_seconds);
  vote->set_stall_seconds(message.stall_seconds);
  vote->set_microbatches(message.microbatches);
  vote->set_exchanged_in_node(message.exchanged.in_node);
  vote->set_exchanged_between_nodes(message.exchanged.between_nodes);
  for (const ChunkDigest& digest : message.digests) {
    vote->add_digest_chunks(digest.chunk);
    vote->add_digests(digest.digest);
  }
  for (const ChunkDigest& copy : message.copies) {
    vote->add_copy_chunks(copy.chunk);
    vote->add_copies(copy.digest);
  }
  for (const ChunkDigest& mirror : message.mirrors) {
    vote->add_mirror_chunks(mirror.chunk);
    vote->add_mirrors(mirror.digest);
  }
  vote->set_statistics_digest(message.statistics_digest);
  for (const Figure& figure : message.figures) {
    v1::Figure* wire_figure = vote->add_figures();
    wire_figure->set_name(figure.name);
    wire_figure->mutable_values()->Add(figure.values.begin(), figure.values.end());
    wire_figure->set_is_list(figure.is_list);
  }
}

template <typename Chunks, typename Digests>
std::vector<ChunkDigest> DigestsFromWire(const Chunks& chunks, const Digests& digests, const char* field,
                                         FieldCheck* check) {
  std::vector<ChunkDigest> result;
  check->Require(digests.size() == chunks.size(), field, "not one per chunk");
  if (!check->Length(digests, kMaxDigests, field) || digests.size() != chunks.size()) return result;
  result.reserve(static_cast<size_t>(digests.size()));
  for (int i = 0; i < digests.size(); ++i) {
    result.push_back({check->RangeInt(chunks[i], 0, INT32_MAX, field), digests[i]});
  }
  return result;
}

template <typename Figures>
std::vector<Figure> FiguresFromWire(const Figures& figures, FieldCheck* check) {
  std::vector<Figure> result;
  if (!check->Length(figures, kMaxFigures, "figures")) return result;
  for (const v1::Figure& wire : figures) {
    Figure& figure = result.emplace_back();
    figure.name = check->Text(wire.name(), kMaxNameBytes, "figures.name");
    if (check->Length(wire.values(), kMaxFigureValues, "figures.values")) {
      figure.values.assign(wire.values().begin(), wire.values().end());
    }
    figure.is_list = wire.is_list();
    check->Require(figure.is_list || figure.values.size() == 1, "figures.values", "not one number");
  }
  return result;
}

absl::StatusOr<WorkerMessage> Read(const v1::Vote& wire) {
  FieldCheck check("Vote");
  VoteMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.loss_bits = wire.loss_bits();
  message.grad_norm_bits = wire.grad_norm_bits();
  message.lr = wire.lr();
  check.Require(std::isfinite(message.lr), "lr", "not a number");  // metrics.jsonl could not be read again
  message.compute_seconds = check.MeasuredSeconds(wire.compute_seconds(), "compute_seconds");
  message.wait_seconds = check.MeasuredSeconds(wire.wait_seconds(), "wait_seconds");
  message.stall_seconds = check.MeasuredSeconds(wire.stall_seconds(), "stall_seconds");
  message.microbatches = check.Count(wire.microbatches(), "microbatches");
  constexpr int64_t kMaxBytes = INT64_MAX / kMaxWorkers;  // all votes' are added
  message.exchanged.in_node = check.Range(wire.exchanged_in_node(), 0, kMaxBytes, "exchanged_in_node");
  message.exchanged.between_nodes =
      check.Range(wire.exchanged_between_nodes(), 0, kMaxBytes, "exchanged_between_nodes");
  message.digests = DigestsFromWire(wire.digest_chunks(), wire.digests(), "digests", &check);
  message.copies = DigestsFromWire(wire.copy_chunks(), wire.copies(), "copies", &check);
  message.mirrors = DigestsFromWire(wire.mirror_chunks(), wire.mirrors(), "mirrors", &check);
  message.statistics_digest = wire.statistics_digest();
  message.figures = FiguresFromWire(wire.figures(), &check);
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const FailureMessage& message, v1::ToCoordinator* wire) {
  v1::Failure* failure = wire->mutable_failure();
  failure->set_generation(message.generation);
  failure->set_step(message.step);
  failure->set_phase(ToWire(message.phase));
  failure->set_cause(ClipText(message.cause, kMaxTextBytes));
  failure->mutable_suspects()->Add(message.suspects.begin(), message.suspects.end());
  failure->set_fatal(message.fatal);
  failure->set_bad_checkpoint(message.bad_checkpoint);
  failure->set_secondhand(message.secondhand);
  failure->set_out_of_memory(message.out_of_memory);
  failure->set_no_room(message.no_room);
  failure->set_bad_data(message.bad_data);
}

absl::StatusOr<WorkerMessage> Read(const v1::Failure& wire) {
  FieldCheck check("Failure");
  FailureMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.phase = PhaseFromWire(wire.phase(), &check);
  message.cause = check.Text(wire.cause(), kMaxTextBytes, "cause");
  if (check.Length(wire.suspects(), kMaxWorkers, "suspects")) {
    for (const int rank : wire.suspects()) {
      message.suspects.push_back(check.RangeInt(rank, 0, kMaxWorkers - 1, "suspects"));
    }
  }
  message.fatal = wire.fatal();
  message.bad_checkpoint = wire.bad_checkpoint();
  message.secondhand = wire.secondhand();
  message.out_of_memory = wire.out_of_memory();
  message.no_room = wire.no_room();
  message.bad_data = wire.bad_data();
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const ValidationMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_validation()->set_generation(message.generation);
  wire->mutable_validation()->set_step(message.step);
  wire->mutable_validation()->set_loss(message.loss);
}

absl::StatusOr<WorkerMessage> Read(const v1::Validation& wire) {
  FieldCheck check("Validation");
  ValidationMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.loss = wire.loss();
  return check.Done<WorkerMessage>(message);
}

void Fill(const SavedFile& file, v1::SavedFile* wire) {
  wire->set_name(file.name);
  wire->set_size(file.size);
  wire->set_digest(file.digest);
}

SavedFile Read(const v1::SavedFile& wire, FieldCheck* check) {
  return {check->Text(wire.name(), kMaxNameBytes, "name"), wire.size(),
          check->Text(wire.digest(), kMaxNameBytes, "digest")};
}

void Fill(const SavedMessage& message, v1::ToCoordinator* wire) {
  v1::Saved* saved = wire->mutable_saved();
  saved->set_generation(message.generation);
  saved->set_step(message.step);
  saved->set_cause(ClipText(message.cause, kMaxTextBytes));
  saved->set_no_room(message.no_room);
  Fill(message.data, saved->mutable_data());
  Fill(message.index, saved->mutable_index());
  saved->set_chunks(message.chunks);
  saved->set_raw_bytes(message.raw_bytes);
  saved->set_stored_bytes(message.stored_bytes);
  saved->set_stall_seconds(message.stall_seconds);
  saved->set_persist_seconds(message.persist_seconds);
}

absl::StatusOr<WorkerMessage> Read(const v1::Saved& wire) {
  FieldCheck check("Saved");
  SavedMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.cause = check.Text(wire.cause(), kMaxTextBytes, "cause");
  message.no_room = wire.no_room();
  message.data = Read(wire.data(), &check);
  message.index = Read(wire.index(), &check);
  message.chunks = check.Count(wire.chunks(), "chunks");
  message.raw_bytes = check.Count(wire.raw_bytes(), "raw_bytes");
  message.stored_bytes = check.Count(wire.stored_bytes(), "stored_bytes");
  message.stall_seconds = check.MeasuredSeconds(wire.stall_seconds(), "stall_seconds");
  message.persist_seconds = check.MeasuredSeconds(wire.persist_seconds(), "persist_seconds");
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const FinishedMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_finished()->set_generation(message.generation);
}

absl::StatusOr<WorkerMessage> Read(const v1::Finished& wire) { return FinishedMessage{wire.generation()}; }

void Fill(const StopRequestMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_stop_request()->set_signal(message.signal);
}

absl::StatusOr<WorkerMessage> Read(const v1::StopRequest& wire) {
  FieldCheck check("StopRequest");
  return check.Done<WorkerMessage>(StopRequestMessage{check.RangeInt(wire.signal(), 0, kMaxSignal, "signal")});
}

void Fill(const AgentHelloMessage& message, v1::ToCoordinator* wire) {
  v1::AgentHello* hello = wire->mutable_agent_hello();
  hello->set_node(message.node);
  hello->set_host(message.host);
  hello->set_pid(message.pid);
  hello->set_num_workers(message.num_workers);
  hello->set_instance(message.instance);
  hello->set_run(message.run);
}

absl::StatusOr<WorkerMessage> Read(const v1::AgentHello& wire) {
  FieldCheck check("AgentHello");
  AgentHelloMessage message;
  message.node = check.Text(wire.node(), kMaxNameBytes, "node");
  message.host = check.Text(wire.host(), kMaxNameBytes, "host");
  message.pid = check.Count(wire.pid(), "pid");
  message.num_workers = check.RangeInt(wire.num_workers(), 0, kMaxWorkers, "num_workers");
  message.instance = wire.instance();
  message.run = wire.run();
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const WorkerExitMessage& message, v1::ToCoordinator* wire) {
  ToWire(message.id, wire->mutable_worker_exit()->mutable_id());
  wire->mutable_worker_exit()->set_cause(ClipText(message.cause, kMaxTextBytes));
  wire->mutable_worker_exit()->set_restarting(message.restarting);
}

absl::StatusOr<WorkerMessage> Read(const v1::WorkerExit& wire) {
  FieldCheck check("WorkerExit");
  WorkerExitMessage message;
  message.id = IdFromWire(wire.id(), &check);
  message.cause = check.Text(wire.cause(), kMaxTextBytes, "cause");
  message.restarting = wire.restarting();
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const LeaveMessage& message, v1::ToCoordinator* wire) { wire->mutable_leave()->set_signal(message.signal); }

absl::StatusOr<WorkerMessage> Read(const v1::Leave& wire) {
  FieldCheck check("Leave");
  return check.Done<WorkerMessage>(LeaveMessage{check.RangeInt(wire.signal(), 0, kMaxSignal, "signal")});
}

void Fill(const ReachMessage& message, v1::ToCoordinator* wire) {
  wire->mutable_reach()->set_round(message.round);
  wire->mutable_reach()->mutable_seconds()->Add(message.seconds.begin(), message.seconds.end());
}

absl::StatusOr<WorkerMessage> Read(const v1::Reach& wire) {
  FieldCheck check("Reach");
  ReachMessage message{wire.round(), {}};
  if (check.Length(wire.seconds(), kMaxWorkers, "seconds")) {
    for (const double seconds : wire.seconds()) {
      check.Require(std::isfinite(seconds), "seconds", "not a number");
      message.seconds.push_back(seconds);
    }
  }
  return check.Done<WorkerMessage>(std::move(message));
}

void Fill(const KnownWorldMessage& message, v1::ToCoordinator* wire) {
  ToWire(message.world, wire->mutable_known_world());
}

absl::StatusOr<WorkerMessage> Read(const v1::World& wire) {
  FieldCheck check("KnownWorld");
  KnownWorldMessage message{WorldFromWire(wire, &check)};
  return check.Done<WorkerMessage>(std::move(message));
}

}  // namespace

void ToWire(const WorkerMessage& message, v1::ToCoordinator* wire) {
  std::visit([wire](const auto& kind) { Fill(kind, wire); }, message);
}

absl::StatusOr<WorkerMessage> FromWire(const v1::ToCoordinator& wire) {
  switch (wire.message_case()) {
    case v1::ToCoordinator::kJoin:
      return Read(wire.join());
    case v1::ToCoordinator::kHeartbeat:
      return Read(wire.heartbeat());
    case v1::ToCoordinator::kRendezvous:
      return Read(wire.rendezvous());
    case v1::ToCoordinator::kRecovered:
      return Read(wire.recovered());
    case v1::ToCoordinator::kVote:
      return Read(wire.vote());
    case v1::ToCoordinator::kFailure:
      return Read(wire.failure());
    case v1::ToCoordinator::kValidation:
      return Read(wire.validation());
    case v1::ToCoordinator::kSaved:
      return Read(wire.saved());
    case v1::ToCoordinator::kFinished:
      return Read(wire.finished());
    case v1::ToCoordinator::kStopRequest:
      return Read(wire.stop_request());
    case v1::ToCoordinator::kAgentHello:
      return Read(wire.agent_hello());
    case v1::ToCoordinator::kWorkerExit:
      return Read(wire.worker_exit());
    case v1::ToCoordinator::kLeave:
      return Read(wire.leave());
    case v1::ToCoordinator::kReach:
      return Read(wire.reach());
    case v1::ToCoordinator::kMirrored:
      return Read(wire.mirrored());
    case v1::ToCoordinator::kKnownWorld:
      return Read(wire.known_world());
    case v1::ToCoordinator::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of no known kind; install the same version of Holdfast everywhere");
}

}  // namespace holdfast
