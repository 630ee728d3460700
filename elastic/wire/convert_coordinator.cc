// Messages of the coordinator, and its status: to the wire and back.

#include <utility>
#include <vector>

#include "elastic/wire/convert.h"
#include "elastic/wire/convert_fields.h"
#include "framework/base/clip_text.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

static_assert(static_cast<int>(Purpose::kTrain) == v1::PURPOSE_TRAIN);
static_assert(static_cast<int>(Purpose::kStop) == v1::PURPOSE_STOP);
static_assert(static_cast<int>(Purpose::kStop) + 1 == v1::Purpose_ARRAYSIZE);

constexpr int kMaxExitCode = 255;

void Fill(const World& source, const World& world, v1::Source* wire) {
  wire->set_generation(source.generation);
  wire->mutable_ranks()->Reserve(source.size());
  for (const Member& member : source.members) {
    const int rank = world.RankOf(member.id);
    const bool same = rank >= 0 && world.members[static_cast<size_t>(rank)] == member;
    wire->add_ranks(same ? static_cast<uint32_t>(rank) + 1 : 0);
    if (!same) ToWire(member, wire->add_members());
  }
  wire->mutable_placement()->Add(source.placement.numbers().begin(), source.placement.numbers().end());
}

World Read(const v1::Source& wire, const World& world, FieldCheck* check) {
  World source{wire.generation(), {}};
  if (!check->Length(wire.ranks(), kMaxWorkers, "source")) return source;
  std::vector<Member> members;
  members.reserve(static_cast<size_t>(wire.ranks_size()));
  int next = 0;
  for (const uint32_t rank : wire.ranks()) {
    const bool known = rank == 0 ? next < wire.members_size() : rank <= static_cast<uint32_t>(world.size());
    check->Require(known, "source", "a member that is not there");
    if (!known) return source;
    members.push_back(rank == 0 ? MemberFromWire(wire.members(next++), check) : world.members[rank - 1]);
  }
  check->Require(next == wire.members_size(), "source", "members without a rank");
  source.members = std::move(members);
  source.placement = PlacementFromWire(wire.placement(), check);
  check->Require(source.members.empty() || source.num_leaving() < source.size(), "source", "all of them leave");
  return source;
}

void Fill(const WorldMessage& message, v1::FromCoordinator* wire) {
  v1::NewWorld* world = wire->mutable_world();
  ToWire(message.world, world->mutable_world());
  Fill(message.source, message.world, world->mutable_source());
  world->set_committed_step(message.committed_step);
  world->set_purpose(static_cast<v1::Purpose>(message.purpose));
  world->mutable_microbatches()->Add(message.microbatches.begin(), message.microbatches.end());
  world->set_checkpoint(message.checkpoint);
  world->set_save(message.save);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::NewWorld& wire) {
  FieldCheck check("NewWorld");
  WorldMessage message;
  message.world = WorldFromWire(wire.world(), &check);
  message.source = Read(wire.source(), message.world, &check);
  message.committed_step = check.Count(wire.committed_step(), "committed_step");
  message.purpose = check.Value(wire.purpose(), Purpose::kStop, "purpose");
  message.microbatches = check.Counts(wire.microbatches(), kMaxWorkers, "microbatches");
  message.checkpoint = check.Text(wire.checkpoint(), kMaxNameBytes, "checkpoint");
  message.save = wire.save();
  return check.Done<CoordinatorMessage>(std::move(message));
}

void Fill(const PeersMessage& message, v1::FromCoordinator* wire) {
  wire->mutable_peers()->set_generation(message.generation);
  for (const std::string& blob : message.blobs) wire->mutable_peers()->add_blobs(blob);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Peers& wire) {
  FieldCheck check("Peers");
  PeersMessage message;
  message.generation = wire.generation();
  if (check.Length(wire.blobs(), kMaxWorkers, "blobs")) {
    for (const std::string& blob : wire.blobs()) message.blobs.push_back(check.Text(blob, kMaxBlobBytes, "blobs"));
  }
  return check.Done<CoordinatorMessage>(std::move(message));
}

void Fill(const CommitMessage& message, v1::FromCoordinator* wire) {
  v1::Commit* commit = wire->mutable_commit();
  commit->set_generation(message.generation);
  commit->set_step(message.step);
  commit->mutable_microbatches()->Add(message.microbatches.begin(), message.microbatches.end());
  commit->set_save(message.save);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Commit& wire) {
  FieldCheck check("Commit");
  CommitMessage message;
  message.generation = wire.generation();
  message.step = check.Count(wire.step(), "step");
  message.microbatches = check.Counts(wire.microbatches(), kMaxWorkers, "microbatches");
  message.save = wire.save();
  return check.Done<CoordinatorMessage>(std::move(message));
}

void Fill(const RefusedMessage& message, v1::FromCoordinator* wire) {
  wire->mutable_refused()->set_reason(ClipText(message.reason, kMaxTextBytes));
  wire->mutable_refused()->set_rejoin(message.rejoin);
  wire->mutable_refused()->set_keep(message.keep);
  wire->mutable_refused()->set_other_run(message.other_run);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Refused& wire) {
  FieldCheck check("Refused");
  return check.Done<CoordinatorMessage>(
      RefusedMessage{check.Text(wire.reason(), kMaxTextBytes, "reason"), wire.rejoin(), wire.keep(), wire.other_run()});
}

void Fill(const EndMessage& message, v1::FromCoordinator* wire) {
  wire->mutable_end()->set_exit_code(message.exit_code);
  wire->mutable_end()->set_reason(ClipText(message.reason, kMaxTextBytes));
}

absl::StatusOr<CoordinatorMessage> Read(const v1::End& wire) {
  FieldCheck check("End");
  return check.Done<CoordinatorMessage>(EndMessage{check.RangeInt(wire.exit_code(), 0, kMaxExitCode, "exit_code"),
                                                   check.Text(wire.reason(), kMaxTextBytes, "reason")});
}

void Fill(const ProbeMessage& message, v1::FromCoordinator* wire) {
  wire->mutable_probe()->set_round(message.round);
  for (const std::string& address : message.addresses) wire->mutable_probe()->add_addresses(address);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Probe& wire) {
  FieldCheck check("Probe");
  ProbeMessage message{wire.round(), {}};
  if (check.Length(wire.addresses(), kMaxWorkers, "addresses")) {
    for (const std::string& a : wire.addresses())
      message.addresses.push_back(check.Text(a, kMaxAddressBytes, "addresses"));
  }
  return check.Done<CoordinatorMessage>(std::move(message));
}

void Fill(const AskWorldMessage& message, v1::FromCoordinator* wire) {
  wire->mutable_ask_world()->set_generation(message.generation);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::AskWorld& wire) { return AskWorldMessage{wire.generation()}; }

void Fill(const WelcomeMessage& message, v1::FromCoordinator* wire) { wire->mutable_welcome()->set_run(message.run); }

absl::StatusOr<CoordinatorMessage> Read(const v1::Welcome& wire) { return WelcomeMessage{wire.run()}; }

void Fill(const WorkerStatus& status, v1::WorkerStatus* wire) {
  ToWire(status.id, wire->mutable_id());
  wire->set_rank(status.rank);
  wire->set_node(status.node);
  wire->set_host(status.host);
  wire->set_pid(status.pid);
  wire->set_step(status.step);
  wire->set_phase(ToWire(status.phase));
  wire->set_seconds_since_heartbeat(status.seconds_since_heartbeat);
  wire->set_seconds_in_phase(status.seconds_in_phase);
  wire->set_relative_compute_time(status.relative_compute_time);
  wire->set_microbatches(status.microbatches);
}

WorkerStatus Read(const v1::WorkerStatus& wire, FieldCheck* check) {
  WorkerStatus status;
  status.id = IdFromWire(wire.id(), check);
  status.rank = check->RangeInt(wire.rank(), -1, kMaxWorkers - 1, "rank");
  status.node = check->Text(wire.node(), kMaxNameBytes, "node");
  status.host = check->Text(wire.host(), kMaxNameBytes, "host");
  status.pid = check->Count(wire.pid(), "pid");
  status.step = check->Count(wire.step(), "step");
  status.phase = PhaseFromWire(wire.phase(), check);
  status.seconds_since_heartbeat = check->Seconds(wire.seconds_since_heartbeat(), "seconds_since_heartbeat");
  status.seconds_in_phase = check->Seconds(wire.seconds_in_phase(), "seconds_in_phase");
  status.relative_compute_time = check->Seconds(wire.relative_compute_time(), "relative_compute_time");
  status.microbatches = check->Count(wire.microbatches(), "microbatches");
  return status;
}

void Fill(const RunFigures& figures, v1::RunFigures* wire) {
  wire->set_run(figures.run);
  wire->set_wanted_workers(figures.wanted_workers);
  for (const std::string& worker : figures.missing) wire->add_missing(ClipText(worker, kMaxTextBytes));
  wire->set_workers_lost(figures.workers_lost);
  wire->set_lost_seconds(figures.lost_seconds);
  wire->set_loss(figures.loss);
  wire->set_tokens(figures.tokens);
  wire->set_tokens_per_second(figures.tokens_per_second);
  wire->set_steps_per_second(figures.steps_per_second);
}

RunFigures Read(const v1::RunFigures& wire, FieldCheck* check) {
  RunFigures figures;
  figures.run = check->Text(wire.run(), kMaxTextBytes, "run");
  figures.wanted_workers = check->Range(wire.wanted_workers(), 0, kMaxWorkers, "wanted_workers");
  if (check->Length(wire.missing(), kMaxWorkers, "missing")) {
    for (const std::string& worker : wire.missing()) {
      figures.missing.push_back(check->Text(worker, kMaxTextBytes, "missing"));
    }
  }
  figures.workers_lost = check->Count(wire.workers_lost(), "workers_lost");
  figures.lost_seconds = check->Seconds(wire.lost_seconds(), "lost_seconds");
  figures.loss = wire.loss();  // may be a NaN
  figures.tokens = check->Count(wire.tokens(), "tokens");
  figures.tokens_per_second = check->Seconds(wire.tokens_per_second(), "tokens_per_second");
  figures.steps_per_second = check->Seconds(wire.steps_per_second(), "steps_per_second");
  return figures;
}

}  // namespace

void ToWire(const CoordinatorMessage& message, v1::FromCoordinator* wire) {
  std::visit([wire](const auto& kind) { Fill(kind, wire); }, message);
}

absl::StatusOr<CoordinatorMessage> FromWire(const v1::FromCoordinator& wire) {
  switch (wire.message_case()) {
    case v1::FromCoordinator::kWorld:
      return Read(wire.world());
    case v1::FromCoordinator::kPeers:
      return Read(wire.peers());
    case v1::FromCoordinator::kCommit:
      return Read(wire.commit());
    case v1::FromCoordinator::kRefused:
      return Read(wire.refused());
    case v1::FromCoordinator::kEnd:
      return Read(wire.end());
    case v1::FromCoordinator::kProbe:
      return Read(wire.probe());
    case v1::FromCoordinator::kAskWorld:
      return Read(wire.ask_world());
    case v1::FromCoordinator::kWelcome:
      return Read(wire.welcome());
    case v1::FromCoordinator::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of no known kind; install the same version of Holdfast everywhere");
}

void ToWire(const RunStatus& status, v1::StatusReply* wire) {
  wire->set_state(RunStateName(status.state));
  wire->set_detail(ClipText(status.detail, kMaxTextBytes));
  wire->set_generation(status.generation);
  wire->set_world_size(status.world_size);
  wire->set_committed_step(status.committed_step);
  wire->set_total_steps(status.total_steps);
  for (const WorkerStatus& worker : status.workers) Fill(worker, wire->add_workers());
  for (const std::string& node : status.nodes) wire->add_nodes(node);
  Fill(status.figures, wire->mutable_figures());
  wire->set_leader(ClipText(status.leader, kMaxTextBytes));
}

absl::StatusOr<RunStatus> FromWire(const v1::StatusReply& wire) {
  FieldCheck check("Status");
  RunStatus status;
  const std::optional<RunState> state = RunStateOf(wire.state());
  check.Require(state.has_value(), "state", "unknown; install the same version of Holdfast everywhere");
  status.state = state.value_or(RunState::kEnded);
  status.detail = check.Text(wire.detail(), kMaxTextBytes, "detail");
  status.generation = wire.generation();
  status.world_size = check.RangeInt(wire.world_size(), 0, kMaxWorkers, "world_size");
  status.committed_step = check.Count(wire.committed_step(), "committed_step");
  status.total_steps = check.Count(wire.total_steps(), "total_steps");
  if (check.Length(wire.workers(), kMaxWorkers, "workers")) {
    for (const v1::WorkerStatus& worker : wire.workers()) status.workers.push_back(Read(worker, &check));
  }
  if (check.Length(wire.nodes(), kMaxAgents, "nodes")) {
    for (const std::string& node : wire.nodes()) status.nodes.push_back(check.Text(node, kMaxNameBytes, "nodes"));
  }
  status.figures = Read(wire.figures(), &check);
  status.leader = check.Text(wire.leader(), kMaxTextBytes, "leader");
  return check.Done(std::move(status));
}

}  // namespace holdfast
