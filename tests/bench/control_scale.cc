// What the control plane costs by the number of workers: messages, bytes (as they travel) and the coordinator's CPU
// time (decisions; making and reading bytes, once for a message to all) of forming a world, of a step, of going on
// without a node of eight, of a coordinator that is started again, of all workers lost and their agents after them, at
// once or when the workers have been given up, of all nodes that are told to leave, in a world and without one, and
// then go, of two halves that do not reach each other, of all workers lost while links are tried, and of as many
// workers again that come and go, each under a new name. Sockets, and the copies of the kernel, are not in it. Times
// are medians, with the least and the most, of five runs of twenty steps.
//
//   control_scale [workers ...]

#include <google/protobuf/arena.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/control/coordinator.h"
#include "elastic/wire/convert.h"
#include "elastic/wire/holdfast.pb.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "framework/comm/gloo/member_address.h"

namespace holdfast {
namespace {

constexpr int kPerNode = 8;
constexpr int kRuns = 5, kSteps = 20;
constexpr int kTicksUntilGivenUp = 40;  // also longer than the rest after a world of 8,192
constexpr int kMostNodesTried = 512;    // beyond, links are not tried

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  int64_t messages_up = 0, messages_down = 0, bytes_up = 0, bytes_down = 0;
  size_t largest = 0;
  double decisions = 0, bytes = 0;  // CPU seconds
};

/// A coordinator and workers that answer as they are expected to.
class Cluster {
 public:
  explicit Cluster(int workers, int min_workers = 1, bool probes = false)
      : workers_(workers), min_workers_(min_workers), probes_(probes) {
    StartCoordinator(/*recorded=*/0);
  }

  Cost Form() {
    cost_ = {};
    for (int w = 0; w < workers_; ++w) Join(w, {});
    Recover();
    return cost_;
  }

  Cost Step() {
    cost_ = {};
    const uint64_t generation = world_.world.generation;
    const int64_t step = ++step_;
    for (const Member& member : world_.world.members) {
      VoteMessage vote{.generation = generation, .step = step, .loss_bits = 1, .grad_norm_bits = 2, .digests = {}};
      vote.lr = 6e-4, vote.compute_seconds = 0.31, vote.wait_seconds = 0.02, vote.microbatches = 1;
      Up(connection_of_.at(member.id.name), vote);
    }
    HOLDFAST_CHECK(committed_ == step);
    return cost_;
  }

  Cost LoseNode() {
    cost_ = {};
    for (int w = 0; w < kPerNode; ++w) Feed(DisconnectEvent{connection_of_.at(NameOf(w)), "connection lost"});
    Recover();
    return cost_;
  }

  Cost RestartCoordinator() {
    cost_ = {};
    const WorldMessage held = world_;
    StartCoordinator(step_);
    for (const Member& member : held.world.members) {
      const int w = static_cast<int>(member.pid);
      Join(w,
           {.world = {held.world.generation, {}}, .committed_step = step_, .prepared_step = 0, .prepared_world = {}});
    }
    while (asked_ == 0) Feed(TickEvent{});
    Up(std::exchange(asked_, 0), KnownWorldMessage{held.world});
    Recover();
    return cost_;
  }

  Cost LoseAll(int ticks_before_agents = 0) {
    AgentsCome();
    return EndStreams(ticks_before_agents);
  }

  Cost EndStreams(int ticks_before_agents = 0) {
    cost_ = {};
    for (int w = 0; w < workers_; ++w) Feed(DisconnectEvent{connection_of_.at(NameOf(w)), "connection lost"});
    for (int tick = 0; tick < ticks_before_agents; ++tick) Feed(TickEvent{});
    for (const Connection agent : agents_) Feed(DisconnectEvent{agent, "connection lost"});
    return cost_;
  }

  /// Of workers that can be probed: a step fails, and each half finds that it does not reach the other.
  Cost CutInHalves() {
    cost_ = {};
    TryLinks();
    for (const auto& [asked, probe] : std::exchange(asked_links_, {})) {
      const bool is_first_half = number_of_.at(asked) < workers_ / 2;
      AnswerLinks(asked, probe, [&](int w) { return (w < workers_ / 2) == is_first_half; });
    }
    return cost_;
  }

  /// Half of those that try links have answered, that they reach nobody.
  Cost LoseAllWhileLinksAreTried() {
    TryLinks();
    const std::map<Connection, ProbeMessage> asked_links = std::exchange(asked_links_, {});
    const auto half = std::next(asked_links.begin(), std::ssize(asked_links) / 2);
    for (auto asked = asked_links.begin(); asked != half; ++asked) {
      AnswerLinks(asked->first, asked->second, [](int) { return false; });
    }
    return EndStreams();
  }

  /// Of more names than are remembered.
  Cost NewNames() {
    for (int w = workers_; w < 2 * workers_ + 2 * kMaxWorkers; ++w) {
      if (w == workers_ + 2 * kMaxWorkers) cost_ = {};
      Join(w, {});
      Feed(DisconnectEvent{connection_of_.at(NameOf(w)), "connection lost"});
    }
    return cost_;
  }

  Cost AllLeave() {
    AgentsCome();
    cost_ = {};
    for (const Connection agent : agents_) Up(agent, LeaveMessage{15});
    return cost_;
  }

  /// One is lost, and fewer than min_workers are left.
  Cost AllLeaveWithoutAWorld() {
    AgentsCome();
    Feed(DisconnectEvent{agents_.back(), "connection lost"});
    Feed(DisconnectEvent{connection_of_.at(NameOf(workers_ - 1)), "connection lost"});
    agents_.pop_back();
    cost_ = {};
    for (const Connection agent : agents_) Up(agent, LeaveMessage{15});
    for (int tick = 0; tick < 100; ++tick) Feed(TickEvent{});
    return cost_;
  }

 private:
  void AgentsCome() {
    for (int w = 0; w < workers_; w += kPerNode) {
      agents_.push_back(++last_connection_);
      Up(last_connection_, AgentHelloMessage{.node = NodeOf(w), .host = NodeOf(w), .num_workers = kPerNode});
    }
  }

  void TryLinks() {
    for (const Member& member : world_.world.members) {
      FailureMessage failure{.generation = world_.world.generation, .step = step_ + 1, .phase = Phase::kReduce};
      failure.cause = "deadline";
      Up(connection_of_.at(member.id.name), failure);
    }
    for (int tick = 0; tick < 20 && asked_links_.empty(); ++tick) Feed(TickEvent{});
    HOLDFAST_CHECK(!asked_links_.empty());
  }

  template <class IsReached>
  void AnswerLinks(Connection asked, const ProbeMessage& probe, const IsReached& is_reached) {
    ReachMessage reach{probe.round, {}};
    for (const std::string& address : probe.addresses) {
      reach.seconds.push_back(is_reached(std::atoi(address.c_str())) ? 0.001 : -1);
    }
    Up(asked, reach);
  }

  static std::string NodeOf(int w) { return absl::StrFormat("gpu-node-%04d", w / kPerNode); }
  static std::string NameOf(int w) { return absl::StrCat(NodeOf(w), "/", w % kPerNode); }

  void StartCoordinator(int64_t recorded) {
    CoordinatorOptions options;
    options.elastic.workers = workers_;
    options.elastic.min_workers = min_workers_;
    options.elastic.rebalance = false;
    options.parallel.mirrors = 1;
    options.microbatches = workers_;
    options.total_steps = 1 << 20;
    options.last_generation = world_.world.generation;
    options.recorded_step = recorded;
    coordinator_ = std::make_unique<Coordinator>(options);
  }

  void Join(int w, const StateClaim& claim) {
    JoinMessage join;
    join.member.id = {NameOf(w), 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(w)};
    join.member.node = NodeOf(w);
    join.member.host = absl::StrCat(NodeOf(w), ".cluster.internal");
    join.member.pid = w;
    join.member.peak_flops = 989.4e12;
    if (probes_) join.member.probe_address = absl::StrCat(w);
    join.claim = claim;
    connection_of_[join.member.id.name] = ++last_connection_;
    number_of_[last_connection_] = w;
    Up(last_connection_, join);
  }

  // Until all members of a new world have recovered.
  void Recover() {
    const uint64_t before = recovered_;
    while (world_.world.generation <= before) Feed(TickEvent{});
    MemberAddress address{.generation = world_.world.generation, .key = 0x123456789abcdef, .groups = 99};
    address.listener.storage.ss_family = AF_INET;
    const std::string blob = EncodeMemberAddress(address);
    for (const Member& m : world_.world.members)
      Up(connection_of_.at(m.id.name), RendezvousMessage{address.generation, blob});
    for (const Member& m : world_.world.members) {
      Up(connection_of_.at(m.id.name), RecoveredMessage{address.generation, 0.01, 0.5, 1.5, int64_t{1} << 30});
    }
    recovered_ = world_.world.generation;
  }

  void Up(Connection from, const WorkerMessage& message) {
    v1::ToCoordinator wire;
    ToWire(message, &wire);
    const std::string bytes = wire.SerializeAsString();
    const double start = CpuSeconds();
    google::protobuf::Arena arena;
    auto* parsed = google::protobuf::Arena::CreateMessage<v1::ToCoordinator>(&arena);
    HOLDFAST_CHECK(parsed->ParseFromString(bytes));
    auto arrived = FromWire(*parsed);
    HOLDFAST_CHECK(arrived.ok());
    cost_.bytes += CpuSeconds() - start;
    cost_.messages_up += 1;
    cost_.bytes_up += static_cast<int64_t>(bytes.size());
    cost_.largest = std::max(cost_.largest, bytes.size());
    Feed(MessageEvent{from, *std::move(arrived)});
  }

  void Feed(const CoordinatorEvent& event) {
    now_ += std::holds_alternative<TickEvent>(event) ? std::chrono::milliseconds(50) : Instant(1000);
    const double start = CpuSeconds();
    std::vector<CoordinatorAction> actions = coordinator_->OnEvent(now_, event);
    cost_.decisions += CpuSeconds() - start;
    for (const CoordinatorAction& action : actions) {
      if (const auto* send = std::get_if<SendAction>(&action)) {
        Down(send->message, 1);
        if (std::holds_alternative<AskWorldMessage>(send->message)) asked_ = send->to;
        if (const auto* probe = std::get_if<ProbeMessage>(&send->message)) asked_links_[send->to] = *probe;
      }
      if (const auto* all = std::get_if<SendToAllAction>(&action)) Down(all->message, all->to.size());
    }
  }

  void Down(const CoordinatorMessage& message, size_t receivers) {
    const double start = CpuSeconds();
    v1::FromCoordinator wire;
    ToWire(message, &wire);
    const std::string bytes = wire.SerializeAsString();
    cost_.bytes += CpuSeconds() - start;
    cost_.messages_down += static_cast<int64_t>(receivers);
    cost_.bytes_down += static_cast<int64_t>(receivers * bytes.size());
    cost_.largest = std::max(cost_.largest, bytes.size());
    if (const auto* world = std::get_if<WorldMessage>(&message)) world_ = *world;
    if (const auto* commit = std::get_if<CommitMessage>(&message)) committed_ = commit->step;
  }

  const int workers_, min_workers_;
  const bool probes_;  // workers can be probed
  std::unique_ptr<Coordinator> coordinator_;
  Instant now_{1};
  std::map<std::string, Connection> connection_of_;
  std::map<Connection, int> number_of_;  // of the worker
  std::vector<Connection> agents_;
  std::map<Connection, ProbeMessage> asked_links_;  // not answered yet
  Connection last_connection_ = 0, asked_ = 0;      // asked_: who is to say who is in a world
  WorldMessage world_;
  uint64_t recovered_ = 0;
  int64_t step_ = 0, committed_ = 0;
  Cost cost_;
};

/// "median [least-most]" in milliseconds.
std::string Milliseconds(const std::vector<Cost>& costs, double Cost::*seconds) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(1e3 * cost.*seconds);
  std::sort(values.begin(), values.end());
  return absl::StrFormat("%.3f [%.3f-%.3f]", values[values.size() / 2], values.front(), values.back());
}

void Print(int workers, const char* what, const std::vector<Cost>& costs) {
  Cost sum;
  for (const Cost& cost : costs) {
    sum.messages_up += cost.messages_up, sum.messages_down += cost.messages_down;
    sum.bytes_up += cost.bytes_up, sum.bytes_down += cost.bytes_down;
    sum.largest = std::max(sum.largest, cost.largest);
  }
  const auto times = static_cast<int64_t>(costs.size());
  const double n = static_cast<double>(times) * workers;
  std::printf("| %5d | %-19s | %7lld | %7lld | %10.0f | %10.0f | %9zu | %8.2f | %3lld | %28s | %28s |\n", workers, what,
              static_cast<long long>(sum.messages_up / times), static_cast<long long>(sum.messages_down / times),
              static_cast<double>(sum.bytes_up) / n, static_cast<double>(sum.bytes_down) / n, sum.largest,
              static_cast<double>(sum.bytes_up + sum.bytes_down) / static_cast<double>(times) / (1 << 20),
              static_cast<long long>(times), Milliseconds(costs, &Cost::decisions).c_str(),
              Milliseconds(costs, &Cost::bytes).c_str());
}

void Measure(int workers) {
  std::vector<Cost> formed, steps, lost, restarted, all_lost, left, left_without;
  std::vector<Cost> late_agents, left_gone, without_gone, halves, lost_in_round, new_names;
  for (int run = 0; run < kRuns; ++run) {
    Cluster cluster(workers);
    formed.push_back(cluster.Form());
    for (int i = 0; i < kSteps; ++i) steps.push_back(cluster.Step());
    if (workers > 2 * kPerNode) {
      lost.push_back(cluster.LoseNode());
      cluster.Step();
    }
    restarted.push_back(cluster.RestartCoordinator());
    all_lost.push_back(cluster.LoseAll());
    Cluster leaving(workers), without(workers, /*min_workers=*/workers), losing(workers), changing(workers);
    for (Cluster* each : {&leaving, &without, &losing, &changing}) {
      each->Form();
      each->Step();
    }
    left.push_back(leaving.AllLeave());
    left_gone.push_back(leaving.EndStreams());
    left_without.push_back(without.AllLeaveWithoutAWorld());
    without_gone.push_back(without.EndStreams());
    late_agents.push_back(losing.LoseAll(kTicksUntilGivenUp));
    new_names.push_back(changing.NewNames());
    if (workers <= kPerNode || workers / kPerNode > kMostNodesTried) continue;
    Cluster cut(workers, /*min_workers=*/1, /*probes=*/true), tried(workers, /*min_workers=*/1, /*probes=*/true);
    for (Cluster* each : {&cut, &tried}) {
      each->Form();
      each->Step();
    }
    halves.push_back(cut.CutInHalves());
    lost_in_round.push_back(tried.LoseAllWhileLinksAreTried());
  }
  Print(workers, "form a world", formed);
  Print(workers, "a step", steps);
  if (!lost.empty()) Print(workers, "a node is lost", lost);
  Print(workers, "coordinator restart", restarted);
  Print(workers, "all are lost", all_lost);
  Print(workers, "all leave", left);
  Print(workers, "all leave, no world", left_without);
  Print(workers, "lost, agents later", late_agents);
  Print(workers, "left, then gone", left_gone);
  Print(workers, "the same, no world", without_gone);
  Print(workers, "as many new names", new_names);
  if (halves.empty()) return;
  Print(workers, "cut in halves", halves);
  Print(workers, "lost as links tried", lost_in_round);
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {8, 64, 512, 1024, 4096};
  std::printf(
      "| workers | what | messages up | down | bytes up a worker | down | largest | MiB in all | samples | "
      "decisions, ms | bytes, ms |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int size : sizes) holdfast::Measure(size);
  return 0;
}
