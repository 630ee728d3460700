// Workers and agents come and go.

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/departures.h"
#include "elastic/control/state_source.h"
#include "framework/base/join_first.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

constexpr size_t kMaxLeaving = 2 * kMaxAgents;

// A coordinator that has lost its files is behind what workers have been in, by no more than a run can have.
constexpr uint64_t kMaxGenerationsAhead = uint64_t{1} << 32;

bool IsSane(const Member& member) {
  return !member.id.name.empty() && member.id.incarnation != 0 && member.id.name.size() <= kMaxNameBytes &&
         member.node.size() <= kMaxNameBytes && member.host.size() <= kMaxNameBytes;
}

uint64_t LastGenerationOf(const JoinMessage& join) {
  return std::max({join.generation, join.claim.world.generation, join.claim.prepared_world.generation,
                   join.claim.entered_world.generation});
}

// " (optimizer.lr, run.seed)"; empty if they are not known.
std::string KeysThatDiffer(const std::map<std::string, uint32_t>& a, const std::map<std::string, uint32_t>& b) {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> keys;
  for (const auto& [key, value] : b) {
    const auto other = a.find(key);
    if (other != a.end() && other->second != value) keys.push_back(key);
  }
  return keys.empty() ? "" : absl::StrCat(" (", JoinFirst(keys, kMaxNamed), ")");
}

}  // namespace

void Coordinator::Refuse(Connection to, const std::string& reason, bool rejoin) {
  Send(to, RefusedMessage{reason, rejoin});
}

void Coordinator::Handle(Connection from, const JoinMessage& join) {
  if (RefuseOtherRun(from, join.run, absl::StrCat("worker ", join.member.id.name, " on ", join.member.host))) {
    // While nobody else is here, this coordinator may be the wrong one: of another directory, or its number was lost.
    if (!end_.over() && roster_.workers().empty() && IsSane(join.member)) {
      ReportRefused(join, absl::StrCat("is of another run (", absl::Hex(join.run), ") than this one (",
                                       absl::Hex(options_.run), ")"));
    }
    return;
  }
  if (const EndMessage* end = end_.end(); end != nullptr) {
    Send(from, *end);
    return;
  }
  if (const auto left = leaving_.find(join.member.node); left != leaving_.end() && left->second.gone) {
    // Another agent of the node, which has not come yet, may have started it.
    const AgentHelloMessage* agent = roster_.AgentOf(left->first);
    if (agent != nullptr && agent->instance == left->second.agent) {
      Send(from, Goodbye(left->first, left->second.signal));
      return;
    }
  }
  const bool may_join = MayJoin(from, join);
  if (may_join) generation_ = std::max(generation_, LastGenerationOf(join));
  if (!may_join || !MakeRoom(from, join)) {
    Advance();
    return;
  }
  refusals_.clear();
  JoinedWorker worker;
  worker.connection = from;
  worker.member = join.member;
  worker.data_digest = join.digests.data;
  worker.token_digest = join.digests.tokens;
  worker.arithmetic = join.digests.arithmetic;
  worker.kernels = join.digests.kernels;
  worker.holds_state = !state_.claimed() && RankHeld(join.member.id, join.claim, state_.source(), committed_) >= 0;
  if (join.claim.committed_step == committed_) worker.entered = join.claim.entered_world.generation;
  if (state_.claimed()) {
    Know(join.claim.world);
    Know(join.claim.prepared_world);
    Know(join.claim.entered_world);
    worker.claim = state_.WithMembers(OnBranch(join.claim));
  }
  worker.kept_out = history_.KeptOut(join.member.id.name);
  worker.left_out = links_.IsCutOff(join.member, roster_, /*but_left_out=*/true);
  worker.arrival = formation_.OnJoin(now_, join.member.id.name, /*with_state=*/!IsEmpty(join.claim));
  worker.joined = worker.last_message = worker.progressed = now_;
  Report(event::WorkerJoined{.worker = join.member.id.name,
                             .rank = worker.rank,
                             .node = join.member.node,
                             .host = join.member.host,
                             .pid = join.member.pid});
  roster_.Add(std::move(worker));
  if (options_.run != 0) Send(from, WelcomeMessage{options_.run});
  Advance();
}

// A secret and an address may be those of several runs, one after the other. Whoever is left over of another one keeps
// its state: its own coordinator may come back, elsewhere. Who does not know whose it is is taken for one of this run.
bool Coordinator::RefuseOtherRun(Connection from, uint64_t run, const std::string& who) {
  if (run == 0 || options_.run == 0 || run == options_.run) return false;
  const std::string reason =
      absl::StrCat("the coordinator leads run ", options_.run_name, " (", absl::Hex(options_.run), "), and ", who,
                   " is of another run (", absl::Hex(run), ")");
  Send(from, RefusedMessage{.reason = reason, .other_run = true});
  Close(from);
  return true;
}

// In which way a worker is not one of this run's; empty if it is.
std::string Coordinator::OtherThanRun(const RunDigests& joins) const {
  const RunDigests& run = options_.digests;
  if (!run.build.empty() && joins.build != run.build) {
    return absl::StrCat("is another build of Holdfast (", joins.build, ") than this run (", run.build,
                        "): install the same one everywhere");
  }
  if (joins.config != run.config) {
    return absl::StrCat("has another configuration than this run", KeysThatDiffer(joins.keys, run.keys),
                        ": start it with the config of the run directory");
  }
  if (!run.arithmetic.empty() && joins.arithmetic != run.arithmetic) {
    return absl::StrCat("computes in ", joins.arithmetic, " arithmetic, this run in ", run.arithmetic,
                        ": set train.arithmetic to one that every processor has, such as portable");
  }
  if (kernels_ != 0 && joins.kernels != 0 && joins.kernels != kernels_) return OtherKernels(joins);
  return "";
}

// What GPUs compute is known from those who have them: the coordinator's machine may have none.
std::string Coordinator::OtherKernels(const RunDigests& joins) const {
  const RunDigests& run = options_.digests;
  if (!run.arithmetic.empty()) {
    return absl::StrCat("computes other bits in ", run.arithmetic, " arithmetic (", absl::Hex(joins.kernels),
                        ") than this run (", absl::Hex(kernels_),
                        "): it was compiled differently, or its processor is faulty");
  }
  const auto& workers = roster_.workers();
  const auto one = std::find_if(workers.rbegin(), workers.rend(),
                                [&](const auto& worker) { return worker.second.kernels == kernels_; });
  return absl::StrCat("computes on ", joins.arithmetic, ", this run on ",
                      one == workers.rend() ? "others" : one->second.arithmetic,
                      ", with other bits: use GPUs of one model, with one version of CUDA's libraries and of nvcc");
}

bool Coordinator::MayJoin(Connection from, const JoinMessage& join) {
  const std::string& name = join.member.id.name;
  if (roster_.workers().empty()) kernels_ = options_.digests.kernels;  // other GPUs may go on with the run
  const uint64_t last = LastGenerationOf(join);
  if (!IsSane(join.member) || (last > generation_ && last - generation_ > kMaxGenerationsAhead) ||
      !IsSaneWorld(join.claim.world) || !IsSaneWorld(join.claim.prepared_world) ||
      !IsSaneWorld(join.claim.entered_world) || roster_.agents().count(from) > 0) {
    Refuse(from, "invalid join message", false);
    Close(from);
    return false;
  }
  if (const std::string other = OtherThanRun(join.digests); !other.empty()) {
    ReportRefused(join, other);
    RefuseSettings(from, absl::StrCat("worker ", name, " on ", join.member.host, " ", other));
    return false;
  }
  if (data_digest_ != 0 && join.digests.data != data_digest_) {
    ReportRefused(join, "has other token files than this run");
    RefuseData(from, join.member);
    return false;
  }
  const bool was_kept_out = history_.KeptOut(name);
  const WorkerHistory::Kind kind = history_.Register(name, join.member.id.incarnation);
  if (was_kept_out && !history_.KeptOut(name)) {
    Report(event::KeptOutResolved{
        .worker = name, .node = join.member.node, .host = join.member.host, .pid = join.member.pid});
  }
  if (kind == WorkerHistory::Kind::kReplaced) {
    const JoinedWorker* other = roster_.Find(name);
    const std::string who =
        other == nullptr ? "" : absl::StrCat(" (on ", other->member.host, ", pid ", other->member.pid, ")");
    Refuse(from,
           absl::StrCat("another process", who, " has taken the place of this worker ", name, " on ", join.member.host,
                        "; two agents may not have one --node name"),
           false);
    Close(from);
    return false;
  }
  if (kind == WorkerHistory::Kind::kOutdated) {  // left over from a connection that the process has given up
    Close(from);
    return false;
  }
  return true;
}

// Of others the agents report the end. Of each cause once, until somebody is taken in: all of them ask again for ever.
void Coordinator::ReportRefused(const JoinMessage& join, const std::string& cause) {
  constexpr size_t kMaxCauses = 16;
  if (IsEmpty(join.claim) || refusals_.size() >= kMaxCauses || !refusals_.insert(cause).second) return;
  Report(event::WorkerRefused{
      .worker = join.member.id.name, .node = join.member.node, .host = join.member.host, .cause = cause});
}

void Coordinator::RefuseSettings(Connection from, const std::string& reason) {
  Send(from, RefusedMessage{.reason = reason, .rejoin = false, .keep = true});
  Close(from);
}

void Coordinator::RefuseData(Connection from, const Member& member) {
  RefuseSettings(from, absl::StrCat("worker ", member.id.name, " on ", member.host, " has other token files than this ",
                                    "run: every host needs the same training and validation data, and, with ",
                                    "data.document_mask, a data.tokenizer with the same end of text"));
}

// Those who hold the state know best, then the checkpoint it is taken from, then most of those who are there, and of
// equally many those who came first. 0 if nobody knows.
uint64_t Coordinator::OfMost(uint64_t JoinedWorker::*digest, uint64_t of_checkpoint) const {
  std::map<uint64_t, std::tuple<int, int, int64_t>> votes;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.*digest == 0) continue;
    auto& [holders, count, first] = votes[worker.*digest];
    holders += worker.holds_state ? 1 : 0;
    first = count++ == 0 ? -worker.arrival : std::max(first, -worker.arrival);
  }
  const auto best = std::max_element(votes.begin(), votes.end(), [&](const auto& a, const auto& b) {
    const auto weight = [&](const auto& entry) {
      const auto& [holders, count, first] = entry.second;
      return std::tuple(holders, !state_.checkpoint().empty() && entry.first == of_checkpoint, count, first);
    };
    return weight(a) < weight(b);
  });
  return best == votes.end() ? 0 : best->first;
}

// What a worker that has the checkpoint's token files joins with: checkpoints of older builds have the digest of those
// alone, also where a token of theirs ends a document.
uint64_t Coordinator::DataDigestOf(const CheckpointChoice& checkpoint) const {
  uint64_t digest = checkpoint.data_digest;
  if (digest == 0) return 0;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.token_digest == checkpoint.data_digest) digest = worker.data_digest;
  }
  return digest;
}

// When a world is about to be made: the data, and the kernels if only workers know them. True if some of those who have
// joined are refused.
bool Coordinator::ChooseWhatIsAlike() {
  const CheckpointChoice* newest = checkpoints_.newest();
  const CheckpointChoice before = newest == nullptr ? CheckpointChoice() : *newest;
  if (data_digest_ == 0) {
    const uint64_t data_before = DataDigestOf(before);
    data_digest_ = OfMost(&JoinedWorker::data_digest, data_before);
    if (data_digest_ != 0 && data_before != 0 && data_before != data_digest_) {
      Report(event::DataChanged{before.name});
    }
  }
  if (kernels_ == 0) {
    kernels_ = OfMost(&JoinedWorker::kernels, before.kernel_digest);
    if (kernels_ != 0 && before.kernel_digest != 0 && before.kernel_digest != kernels_) {
      Report(event::KernelsChanged{before.name});
    }
  }
  std::map<std::string, std::string> others;  // by name: why
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.data_digest != data_digest_) others[name] = "it has other token files";
    if (worker.kernels != 0 && worker.kernels != kernels_) others[name] = "it has another GPU";
  }
  for (const auto& [name, why] : others) {
    const JoinedWorker worker = *roster_.Find(name);
    if (worker.data_digest != data_digest_) {
      RefuseData(worker.connection, worker.member);
    } else {
      RefuseSettings(worker.connection,
                     absl::StrCat("worker ", name, " on ", worker.member.host, " ",
                                  OtherKernels({.arithmetic = worker.arithmetic, .kernels = worker.kernels})));
    }
    Remove(name, why, Leave::kGone);
  }
  return !others.empty();
}

// Whoever has the name or the connection leaves. False if the newcomer cannot be taken in as it is.
bool Coordinator::MakeRoom(Connection from, const JoinMessage& join) {
  const WorkerId& id = join.member.id;
  if (const JoinedWorker* same = roster_.FindByConnection(from); same != nullptr && same->member.id.name != id.name) {
    const std::string name = same->member.id.name;
    Remove(name, absl::StrCat("its connection is used by ", id.name), Leave::kGone);
  }
  if (const JoinedWorker* before = roster_.Find(id.name); before != nullptr) {
    const bool same_process = before->member.id == id;
    Remove(id.name, same_process ? "connected anew" : "a newer process has taken its place",
           before->connection == from ? Leave::kGone : Leave::kClosed);
  }
  if (HasStaleClaim(join.member.id, join.claim)) {
    Refuse(from, absl::StrCat("the state that ", id.name, " holds is not that of step ", committed_), true);
    return false;
  }
  if (roster_.full() && (IsEmpty(join.claim) || !SendSpareAway())) {
    Refuse(from, "too many workers have joined", true);
    Close(from);
    return false;
  }
  return true;
}

// The last that has come of those that hold nothing. False if there is none. Thousands may have to go one after the
// other, so they are looked for together.
bool Coordinator::SendSpareAway() {
  const auto is_spare = [](const JoinedWorker* worker) {
    return worker != nullptr && worker->rank < 0 && !worker->holds_state && worker->entered == 0 &&
           IsEmpty(worker->claim);
  };
  while (!spares_.empty() && !is_spare(roster_.Find(spares_.rbegin()->second))) spares_.erase(std::prev(spares_.end()));
  if (spares_.empty()) {
    for (const auto& [name, worker] : roster_.workers()) {
      if (is_spare(&worker)) spares_.emplace(worker.arrival, name);
    }
  }
  if (spares_.empty()) return false;
  const std::string name = spares_.extract(std::prev(spares_.end())).mapped();
  Remove(name, "there are too many workers, and one that holds state has come back", Leave::kRefused);
  return true;
}

// What the run has gone back behind is no claim.
StateClaim Coordinator::OnBranch(StateClaim claim) const {
  const World& prepared = claim.prepared_world.generation != 0 ? claim.prepared_world : claim.world;
  if (!branch_.Includes(prepared.generation, claim.prepared_step)) claim.prepared_step = 0;
  for (World* world : {&claim.world, &claim.entered_world}) {
    if (!branch_.Includes(world->generation, claim.committed_step)) *world = {};
  }
  return claim;
}

bool Coordinator::IsSaneWorld(const World& world) const {
  return world.size() <= kMaxWorkers && HasSanePlacement(world, options_.parallel);
}

void Coordinator::Know(const World& world) {
  if (!state_.Learn(world)) return;
  for (auto& [name, worker] : roster_.workers()) worker.claim = state_.WithMembers(std::move(worker.claim));
}

void Coordinator::Handle(Connection from, const KnownWorldMessage& known) {
  if (!state_.WasAsked(from, known.world.generation) || !IsSaneWorld(known.world)) return;
  Know(known.world);
  Advance();
}

// One of those who claim it; if that one goes, another.
void Coordinator::AskForWorlds() {
  for (const auto& [name, worker] : roster_.workers()) {
    for (const World* world : {&worker.claim.world, &worker.claim.prepared_world, &worker.claim.entered_world}) {
      if (world->generation == 0 || !world->members.empty()) continue;
      Connection& asked = state_.AskedFor(world->generation);
      if (asked != 0 && roster_.FindByConnection(asked) != nullptr) continue;
      asked = worker.connection;
      Send(asked, AskWorldMessage{world->generation});
    }
  }
}

bool Coordinator::IsContradicted(const WorkerId& id) const {
  const auto contradicted = contradicted_.find(id.name);
  return contradicted != contradicted_.end() && contradicted->second.incarnation == id.incarnation;
}

bool Coordinator::HasStaleClaim(const WorkerId& id, const StateClaim& claim) const {
  if (IsContradicted(id)) return !IsEmpty(claim);
  if (state_.claimed()) return !IsEmpty(claim) && IsEmpty(OnBranch(claim));
  if (state_.kind() == StateLocation::Kind::kNowhere) return claim.world.generation != 0;
  if (RankHeld(id, claim, state_.source(), committed_) >= 0) return false;
  // What somebody has of a world that committed nothing is at least not of another step.
  const bool was_counted_on = claim.world.generation != 0 || claim.prepared_step != 0;
  return was_counted_on || state_.source().RankOf(id) >= 0;
}

void Coordinator::Handle(Connection from, const AgentHelloMessage& hello) {
  if (RefuseOtherRun(from, hello.run, absl::StrCat("the agent of node ", hello.node, " on ", hello.host))) return;
  if (const EndMessage* end = end_.end(); end != nullptr) {
    Send(from, *end);
    return;
  }
  if (roster_.agents_full() || roster_.FindByConnection(from) != nullptr || roster_.agents().count(from) > 0) {
    Close(from);
    return;
  }
  const AgentHelloMessage* other = roster_.AgentOf(hello.node);
  if (other != nullptr && other->instance != hello.instance) {
    RefuseAgent(from, hello, *other);
    return;
  }
  roster_.AddAgent(from, hello);
  if (options_.run != 0) Send(from, WelcomeMessage{options_.run});
  if (const auto it = leaving_.find(hello.node); it != leaving_.end() && it->second.agent != hello.instance) {
    RememberLeft(hello.node);  // another agent: the one that asked is gone, and its workers with it
  }
  // It was let go while it was away, and has not heard so.
  if (const auto it = leaving_.find(hello.node); it != leaving_.end()) {
    it->second.gone = false;
    leavers_are_news_ = true;
  }
  if (left_.erase(hello.node) > 0) Report(event::NodeReturned{hello.node, hello.host});
  Report(event::AgentJoined{hello.node, hello.host, hello.num_workers});
}

// Else the two would replace each other's workers for ever. A host that died without a word is noticed by the stream.
void Coordinator::RefuseAgent(Connection from, const AgentHelloMessage& hello, const AgentHelloMessage& other) {
  Report(event::AgentRefused{
      .node = hello.node, .host = hello.host, .pid = hello.pid, .other_host = other.host, .other_pid = other.pid});
  Refuse(from,
         absl::StrCat("there is an agent of node ", hello.node, " already, on ", other.host, " (pid ", other.pid,
                      "): give this one on ", hello.host,
                      " another --node; if that one is gone, start this one again "
                      "in half a minute"),
         false);
  Close(from);
}

void Coordinator::Handle(Connection from, const WorkerExitMessage& exit) {
  const auto agent = roster_.agents().find(from);
  if (end_.over() || agent == roster_.agents().end()) return;
  const JoinedWorker* worker = roster_.Find(exit.id.name);
  if (worker != nullptr && worker->member.node != agent->second.node) return;  // an agent knows its own ones only
  Report(event::WorkerExited{exit.id.name, exit.cause, exit.restarting});
  state_.OnProcessEnded(agent->second.node, exit.id);
  if (worker == nullptr) return Advance();
  const uint64_t incarnation = worker->member.id.incarnation;
  if (exit.id.incarnation != 0 && !WorkerHistory::SameProcess(exit.id.incarnation, incarnation)) return;
  Remove(exit.id.name, exit.cause, Leave::kClosed);
  Advance();
}

void Coordinator::Handle(Connection from, const LeaveMessage& leave) {
  const auto agent = roster_.agents().find(from);
  if (end_.over() || agent == roster_.agents().end()) return;
  const std::string& node = agent->second.node;
  if (leaving_.size() >= kMaxLeaving) ForgetLeaversThatAreAway();
  if (!leaving_.emplace(node, Leaving{leave.signal, agent->second.instance}).second) return;
  roster_.SetLeaves(node, true);
  leavers_are_news_ = true;
  Report(event::NodeLeaving{node, agent->second.host, committed_});
  Advance();
}

// Machines may come and go under ever new names. An agent that is forgotten says again that it leaves when it is back.
void Coordinator::ForgetLeaversThatAreAway() {
  std::set<std::string> here;
  for (const auto& [connection, agent] : roster_.agents()) here.insert(agent.node);
  if (open_.has_value()) {
    for (const Member& member : open_->world.members) here.insert(member.node);
  }
  std::erase_if(leaving_, [&](const auto& entry) {
    const bool is_away = !here.contains(entry.first);
    if (is_away) roster_.SetLeaves(entry.first, false);
    return is_away;
  });
}

// It is to leave no more.
void Coordinator::RememberLeft(const std::string& node) {
  leaving_.erase(node);
  roster_.SetLeaves(node, false);
  if (left_.size() >= kMaxLeaving) left_.erase(left_.begin());
  left_.insert(node);
}

// After a commit: somebody in the world is to leave, and either the others hold everything, or the next world can be
// one in which they are given it.
bool Coordinator::LeaversCanGo() const {
  const MemberList& members = open_->world.members;
  std::vector<bool> stays;
  stays.reserve(members.size());
  for (const Member& member : members) stays.push_back(!IsLeaving(member.node) && !member.leaves);
  const bool some = std::find(stays.begin(), stays.end(), false) != stays.end();
  const bool all = std::find(stays.begin(), stays.end(), true) == stays.end();
  const bool drained = open_->world.num_leaving() == std::count(stays.begin(), stays.end(), false);
  return some && !all && !Ending() &&
         (!drained || HoldersOfLostState(open_->world, stays, options_.parallel, options_.used_cells).empty());
}

bool Coordinator::AllMembersLeave() const {
  return std::all_of(open_->world.members.begin(), open_->world.members.end(),
                     [&](const Member& member) { return IsLeaving(member.node); });
}

// The others hold everything.
bool Coordinator::CanSpare(const std::function<bool(const Member&)>& some) const {
  std::vector<bool> others;
  for (const Member& member : state_.source().members) {
    const auto found = roster_.workers().find(member.id.name);
    others.push_back(found != roster_.workers().end() && found->second.holds_state && !some(member));
  }
  return std::find(others.begin(), others.end(), false) == others.end() ||
         PlacementOf(state_.source(), options_.parallel).LostCells(others, options_.used_cells).empty();
}

EndMessage Coordinator::Goodbye(const std::string& node, int signal) {
  return {128 + signal, absl::StrCat("node ", node, " has left the run")};
}

// Nodes that are told to leave one by one leave the run to each other, until there is nobody to leave it to. Not at
// once: another may be about to come, or to come back.
void Coordinator::StopIfNobodyStays() {
  if (!open_.has_value() || Ending() || roster_.SomebodyStays()) {
    nobody_stays_since_.reset();
    return;
  }
  if (!nobody_stays_since_.has_value()) nobody_stays_since_ = now_;
  if (now_ - *nobody_stays_since_ < std::chrono::milliseconds(options_.elastic.heartbeat_timeout_ms)) return;
  const std::string& node = open_->world.members[0].node;
  RequestStop(leaving_.at(node).signal, absl::StrCat("node ", node));
}

// Nothing depends on those that leave any more: a step was done in a world without them, or there is no world and the
// others hold everything. Thousands may leave at once, so nobody is searched for each of them.
void Coordinator::SayGoodbye() {
  if (std::all_of(leaving_.begin(), leaving_.end(), [](const auto& leaves) { return leaves.second.gone; })) return;
  std::set<std::string> in_world;  // nodes
  if (open_.has_value()) {
    for (const Member& member : open_->world.members) in_world.insert(member.node);
  }
  std::vector<std::string> nodes;
  for (const auto& [node, leaves] : leaving_) {
    if (!leaves.gone && !in_world.contains(node)) nodes.push_back(node);
  }
  if (nodes.empty()) return;
  const World& source = state_.source();
  std::vector<bool> here;         // by rank of the source: has its part still
  std::set<std::string> holding;  // nodes
  for (const Member& member : source.members) {
    const JoinedWorker* worker = roster_.Find(member.id.name);
    here.push_back(worker != nullptr && worker->holds_state);
    if (here.back()) holding.insert(member.node);
  }
  std::vector<bool> goes(nodes.size(), true);
  // Who holds nothing can go if those that are here hold everything.
  if (std::find(here.begin(), here.end(), false) != here.end() ||
      std::any_of(nodes.begin(), nodes.end(), [&](const std::string& node) { return holding.contains(node); })) {
    const Placement placement = PlacementOf(source, options_.parallel);
    if (!placement.LostCells(here, options_.used_cells).empty()) return;
    goes = WhoCanGo(source, placement, options_.used_cells, here, nodes);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!goes[i]) continue;
    const std::string& node = nodes[i];
    Leaving& leaves = leaving_.at(node);
    const EndMessage end = Goodbye(node, leaves.signal);
    const std::set<std::string> workers = roster_.WorkersOf(node);
    for (const std::string& name : workers) Send(roster_.Find(name)->connection, end);
    for (const std::string& name : workers) {
      const WorkerId id = roster_.Find(name)->member.id;
      roster_.Remove(name);
      AbandonSavesOf(id);
    }
    for (const Connection connection : roster_.AgentsOf(node)) Send(connection, end);
    Report(event::NodeLeft{node, committed_});
    leaves.gone = true;
  }
}

// Whatever is at work with this worker ends; the caller makes the next world.
void Coordinator::Remove(const std::string& name, const std::string& cause, Leave how) {
  const JoinedWorker worker = *roster_.Find(name);
  if (worker.cut_since.has_value()) how = Leave::kGone;
  if (how == Leave::kRefused) Refuse(worker.connection, cause, true);
  if (how != Leave::kGone) Close(worker.connection);
  roster_.Remove(name);
  if (end_.over()) return;
  links_.Drop(name);
  AbandonSavesOf(worker.member.id);
  checkpoints_.OnWorkerLost();
  Report(event::WorkerLost{.worker = name,
                           .rank = worker.rank,
                           .node = worker.member.node,
                           .host = worker.member.host,
                           .cause = cause,
                           .generation = generation_,
                           .step = committed_ + 1});
  if (worker.rank >= 0) {
    blame_.Drop();
    damaged_data_.Drop();
    RecordFailure(worker, how == Leave::kRefused);
    CloseWorld(absl::StrCat(name, " lost: ", cause), std::chrono::duration<double>(now_ - worker.last_message).count());
  }
}

void Coordinator::RecordFailure(const JoinedWorker& worker, bool at_fault) {
  const std::string& name = worker.member.id.name;
  const Instant lifetime = at_fault ? Instant{0} : now_ - worker.admitted;
  const Instant wait = history_.Failed(name, now_, lifetime);
  if (wait == Instant{0}) return;
  Report(event::Quarantined{name, history_.Failures(name), std::chrono::duration<double>(wait).count()});
}

}  // namespace holdfast
