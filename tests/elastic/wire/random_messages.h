#pragma once
// Messages with random contents inside the limits of the wire, and field-by-field comparison.

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "elastic/control/messages.h"
#include "elastic/control/run_status.h"
#include "framework/base/limits.h"

namespace holdfast::testing {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  /// Kind i is alternative i of the variant.
  WorkerMessage Worker(size_t kind) {
    switch (kind) {
      case 0:
        return JoinMessage{AMember(),
                           StateClaim{AWorld(), Count(), Count(), AWorld(), AWorld()},
                           {Word(),
                            Word(),
                            Word(),
                            "",
                            Word(),
                            "",
                            {{"optimizer.lr", 7}, {"run.seed", static_cast<uint32_t>(Word())}}},
                           Word(),
                           Word()};
      case 1:
        return HeartbeatMessage{Word(), Count(), APhase(), Word(), Count(), Count()};
      case 2:
        return RendezvousMessage{Word(), Bytes(kMaxBlobBytes)};
      case 3:
        return RecoveredMessage{Word(), Seconds(), Seconds(), Seconds(), Bytes64(), Bytes64()};
      case 4:
        return AVote();
      case 5:
        return FailureMessage{Word(), Count(), APhase(), Bytes(4096), Suspects(), Flip(),
                              Flip(), Flip(),  Flip(),   Flip(),      Flip()};
      case 6:
        return ValidationMessage{Word(), Count(), Seconds() - 1};
      case 7:
        return ASave();
      case 8:
        return FinishedMessage{Word()};
      case 9:
        return StopRequestMessage{static_cast<int>(Below(128))};
      case 10:
        return AgentHelloMessage{Bytes(256), Bytes(256), Count(), static_cast<int>(Below(kMaxWorkers)), Word(), Word()};
      case 11:
        return WorkerExitMessage{{Bytes(256), Word()}, Bytes(4096), Flip()};
      case 12:
        return LeaveMessage{static_cast<int>(Below(128))};
      case 13:
        return ReachMessage{Word(), {Seconds(), -1, Seconds()}};
      case 14:
        return MirroredMessage{Word()};
      default:
        return KnownWorldMessage{AWorld()};
    }
  }

  CoordinatorMessage FromCoordinator(size_t kind) {
    switch (kind) {
      case 0:
        return AWorldMessage();
      case 1:
        return APeers();
      case 2:
        return CommitMessage{Word(), Count(), Counts(), Flip()};
      case 3:
        return RefusedMessage{Bytes(4096), Flip(), Flip(), Flip()};
      case 4:
        return EndMessage{static_cast<int>(Below(256)), Bytes(4096)};
      case 6:
        return AskWorldMessage{Word()};
      case 7:
        return WelcomeMessage{Word()};
      default:
        return ProbeMessage{Word(), {Bytes(kMaxAddressBytes), Bytes(kMaxAddressBytes)}};
    }
  }

  RunStatus Status() {
    RunStatus status{static_cast<RunState>(Below(5)),
                     Bytes(4096),
                     Word(),
                     static_cast<int>(Below(kMaxWorkers)),
                     Count(),
                     Count(),
                     {},
                     {Bytes(256), Bytes(256)},
                     {},
                     {.run = Bytes(256),
                      .wanted_workers = static_cast<int64_t>(Below(kMaxWorkers)),
                      .missing = {Bytes(256), Bytes(256)},
                      .workers_lost = Count(),
                      .lost_seconds = Seconds(),
                      .loss = Seconds(),
                      .tokens = Count(),
                      .tokens_per_second = Seconds(),
                      .steps_per_second = Seconds()},
                     Bytes(256)};
    for (uint64_t i = Below(5); i > 0; --i) {
      status.workers.push_back({{Bytes(256), Word()},
                                static_cast<int>(Below(100)) - 1,
                                Bytes(256),
                                Bytes(256),
                                Count(),
                                Count(),
                                APhase(),
                                Seconds(),
                                Seconds(),
                                Seconds(),
                                Count()});
    }
    return status;
  }

  uint64_t Word() { return Flip() ? random_() : random_() % 3; }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Flip() { return Below(2) == 0; }

 private:
  int64_t Count() {
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return static_cast<int64_t>(Flip() ? Below(kMax) + 1 : Below(3));
  }
  int64_t Bytes64() { return static_cast<int64_t>(Below(uint64_t{1} << 40)); }
  double Seconds() { return static_cast<double>(Below(1 << 30)) / 1024; }
  Phase APhase() { return static_cast<Phase>(Below(static_cast<uint64_t>(Phase::kIdle) + 1)); }
  /// Any bytes, also none, also the most that is allowed.
  std::string Bytes(size_t most) {
    std::string bytes(Below(4) == 0 ? most : Below(20), '\0');
    for (char& byte : bytes) byte = static_cast<char>(Below(256));
    return bytes;
  }
  std::vector<int64_t> Counts() {
    std::vector<int64_t> counts(Below(6));
    for (int64_t& count : counts) count = Count();
    return counts;
  }
  std::vector<int> Suspects() {
    std::vector<int> ranks(Below(4));
    for (int& rank : ranks) rank = static_cast<int>(Below(kMaxWorkers));
    return ranks;
  }
  Member AMember() {
    return {{Bytes(256), Word()}, Bytes(256), Bytes(256), Count(), false, Seconds(), Bytes(kMaxAddressBytes)};
  }
  World AWorld() {
    std::vector<Member> members;
    for (uint64_t i = Below(4); i > 0; --i) members.push_back(AMember());
    if (members.size() > 1) members.back().leaves = Below(2) == 1;
    World world{Word(), members};
    std::vector<uint32_t> placement;
    for (uint64_t i = Below(20); i > 0; --i) placement.push_back(static_cast<uint32_t>(Word()));
    world.placement = std::move(placement);
    return world;
  }
  /// Some of its members are in `world`, some of them as they are there.
  World ASource(const World& world) {
    const World strangers = AWorld();
    std::vector<Member> members(strangers.members.begin(), strangers.members.end());
    for (const Member& member : world.members) {
      if (Below(3) == 0) continue;
      members.insert(members.begin() + static_cast<std::ptrdiff_t>(Below(members.size() + 1)), member);
      if (Below(3) == 0) members.back().pid = Count();
    }
    for (size_t i = 0; i < members.size(); ++i) members[i].leaves = i > 0 && members[i].leaves;
    return {strangers.generation, members, strangers.placement};
  }
  WorldMessage AWorldMessage() {
    const World world = AWorld();
    return {world, ASource(world), Count(), Flip() ? Purpose::kTrain : Purpose::kStop, Counts(), Bytes(256), Flip()};
  }
  VoteMessage AVote() {
    VoteMessage vote{Word(),
                     Count(),
                     static_cast<uint32_t>(Word()),
                     static_cast<uint32_t>(Word()),
                     Seconds() - 1,
                     Seconds(),
                     Seconds(),
                     Seconds(),
                     Count(),
                     {}};
    for (uint64_t i = Below(6); i > 0; --i) vote.digests.push_back({static_cast<int32_t>(Below(INT32_MAX)), Word()});
    for (auto* digests : {&vote.copies, &vote.mirrors}) {
      for (uint64_t n = Below(4); n > 0; --n) digests->push_back({static_cast<int32_t>(Below(1000)), Word()});
    }
    vote.exchanged = {static_cast<int64_t>(Below(1 << 20)), static_cast<int64_t>(Below(1 << 20))};
    vote.statistics_digest = Word();
    for (uint64_t n = Below(4); n > 0; --n) {
      Figure& figure = vote.figures.emplace_back(Figure{.name = Bytes(256), .values = {Seconds()}, .is_list = Flip()});
      for (uint64_t i = figure.is_list ? Below(9) : 0; i > 0; --i) figure.values.push_back(Seconds());
    }
    return vote;
  }
  SavedMessage ASave() {
    const auto file = [&] { return SavedFile{Bytes(256), Word(), Bytes(256)}; };
    return {Word(), Count(), Bytes(4096), Flip(), file(), file(), Count(), Count(), Count(), Seconds(), Seconds()};
  }
  PeersMessage APeers() {
    PeersMessage peers{Word(), {}};
    for (uint64_t i = Below(5); i > 0; --i) peers.blobs.push_back(Bytes(3000));
    return peers;
  }

  std::mt19937_64 random_;
};

inline auto Fields(const JoinMessage& m) { return std::tie(m.member, m.claim, m.digests, m.generation, m.run); }
inline auto Fields(const HeartbeatMessage& m) {
  return std::tie(m.generation, m.step, m.phase, m.progress, m.bytes_loaded, m.bytes_to_load);
}
inline auto Fields(const RendezvousMessage& m) { return std::tie(m.generation, m.blob); }
inline auto Fields(const RecoveredMessage& m) {
  return std::tie(m.generation, m.abort_seconds, m.rendezvous_seconds, m.transfer_seconds, m.bytes_received,
                  m.mirror_bytes);
}
inline auto Fields(const VoteMessage& m) {
  return std::tie(m.generation, m.step, m.loss_bits, m.grad_norm_bits, m.lr, m.compute_seconds, m.wait_seconds,
                  m.stall_seconds, m.microbatches, m.exchanged.in_node, m.exchanged.between_nodes, m.digests, m.copies,
                  m.mirrors, m.statistics_digest, m.figures);
}
inline auto Fields(const FailureMessage& m) {
  return std::tie(m.generation, m.step, m.phase, m.cause, m.suspects, m.fatal, m.bad_checkpoint, m.secondhand,
                  m.out_of_memory, m.no_room, m.bad_data);
}
inline auto Fields(const ValidationMessage& m) { return std::tie(m.generation, m.step, m.loss); }
inline auto Fields(const SavedMessage& m) {
  return std::tie(m.generation, m.step, m.cause, m.no_room, m.data, m.index, m.chunks, m.raw_bytes, m.stored_bytes,
                  m.stall_seconds, m.persist_seconds);
}
inline auto Fields(const FinishedMessage& m) { return std::tie(m.generation); }
inline auto Fields(const StopRequestMessage& m) { return std::tie(m.signal); }
inline auto Fields(const AgentHelloMessage& m) {
  return std::tie(m.node, m.host, m.pid, m.num_workers, m.instance, m.run);
}
inline auto Fields(const WorkerExitMessage& m) { return std::tie(m.id, m.cause, m.restarting); }
inline auto Fields(const LeaveMessage& m) { return std::tie(m.signal); }
inline auto Fields(const MirroredMessage& m) { return std::tie(m.generation); }
inline auto Fields(const ReachMessage& m) { return std::tie(m.round, m.seconds); }
inline auto Fields(const KnownWorldMessage& m) { return std::tie(m.world); }
inline auto Fields(const AskWorldMessage& m) { return std::tie(m.generation); }
inline auto Fields(const WelcomeMessage& m) { return std::tie(m.run); }
inline auto Fields(const ProbeMessage& m) { return std::tie(m.round, m.addresses); }
inline auto Fields(const WorldMessage& m) {
  return std::tie(m.world, m.source, m.committed_step, m.purpose, m.microbatches, m.checkpoint, m.save);
}
inline auto Fields(const PeersMessage& m) { return std::tie(m.generation, m.blobs); }
inline auto Fields(const CommitMessage& m) { return std::tie(m.generation, m.step, m.microbatches, m.save); }
inline auto Fields(const RefusedMessage& m) { return std::tie(m.reason, m.rejoin, m.keep, m.other_run); }
inline auto Fields(const EndMessage& m) { return std::tie(m.exit_code, m.reason); }
inline auto Fields(const WorkerStatus& s) {
  return std::tie(s.id, s.rank, s.node, s.host, s.pid, s.step, s.phase, s.seconds_since_heartbeat, s.seconds_in_phase,
                  s.relative_compute_time, s.microbatches);
}

template <typename... Kinds>
bool Equal(const std::variant<Kinds...>& a, const std::variant<Kinds...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& kind) { return Fields(kind) == Fields(std::get<std::decay_t<decltype(kind)>>(b)); }, a);
}

inline bool Equal(const RunStatus& a, const RunStatus& b) {
  const auto head = [](const RunStatus& s) {
    return std::tie(s.state, s.detail, s.generation, s.world_size, s.committed_step, s.total_steps, s.nodes, s.leader);
  };
  if (head(a) != head(b) || a.workers.size() != b.workers.size()) return false;
  for (size_t i = 0; i < a.workers.size(); ++i) {
    if (Fields(a.workers[i]) != Fields(b.workers[i])) return false;
  }
  return a.figures == b.figures;
}

}  // namespace holdfast::testing
