#include "elastic/launch/mpi_job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr char kNamePrefix[] = "mpi/";
constexpr size_t kTextBytes = 512;  // of a host name or an address
using Text = std::array<char, kTextBytes>;

Deadline SetupDeadline() { return std::chrono::steady_clock::now() + std::chrono::minutes(10); }

Bytes BytesOf(Text& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string NameOf(int rank) { return absl::StrFormat("%s%05d", kNamePrefix, rank); }

/// The rank in MPI of a member; -1 if it is none of this job.
int MpiRankOf(const Member& member) {
  int rank = -1;
  const std::string& name = member.id.name;
  if (name.rfind(kNamePrefix, 0) != 0 || !absl::SimpleAtoi(name.substr(sizeof(kNamePrefix) - 1), &rank)) return -1;
  return rank;
}

/// "mpi/00002 on b, mpi/00003 on b and 7 more".
std::string NamesOf(const World& world, const std::vector<int>& ranks) {
  constexpr size_t kMaxNamed = 8;
  if (ranks.empty()) return "another member";
  return JoinFirst(ranks, kMaxNamed, [&](std::string* out, int rank) {
    const Member& member = world.members[static_cast<size_t>(rank)];
    absl::StrAppend(out, member.id.name, " on ", member.host);
  });
}

[[noreturn]] void EndBroken(const std::string& why) {
  MpiJob::End(kExitWorldBroken, absl::StrCat(why, "; MPI cannot continue without a member: start the job again; it ",
                                             "resumes from its newest checkpoint"));
}

}  // namespace

void MpiJob::End(int exit_code, const std::string& why) {
  LogError(why);
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

absl::StatusOr<std::unique_ptr<MpiJob>> MpiJob::Start() {
  ASSIGN_OR_RETURN(auto environment, MpiEnvironment::Start());
  std::unique_ptr<MpiJob> job(new MpiJob(std::move(environment)));
  ASSIGN_OR_RETURN(auto communicators, job->environment_->Connect(0, {AllRanks(job->environment_->size())}));
  job->all_ = std::move(communicators[0]);
  RETURN_IF_ERROR(job->LearnHosts());
  return job;
}

MpiJob::~MpiJob() {
  std::string nowhere;
  if (rank() == 0 && !announced_ && all_ != nullptr) Announce(&nowhere).IgnoreError();
  all_.reset();
  environment_->Finish();
}

absl::Status MpiJob::LearnHosts() {
  const int size = environment_->size();
  Text mine{};
  if (gethostname(mine.data(), mine.size() - 1) != 0) return absl::InternalError("this machine has no name");
  std::vector<Text> all(static_cast<size_t>(size));
  const std::vector<int64_t> counts(static_cast<size_t>(size), kTextBytes);
  std::vector<int64_t> displacements(static_cast<size_t>(size));
  for (size_t r = 0; r < displacements.size(); ++r) displacements[r] = static_cast<int64_t>(r * kTextBytes);
  const Bytes output(reinterpret_cast<std::byte*>(all.data()), all.size() * kTextBytes);
  RETURN_IF_ERROR(all_->AllGatherV(BytesOf(mine), {output, counts, displacements}, SetupDeadline()));
  for (Text& host : all) {
    host.back() = 0;
    hosts_.emplace_back(host.data());
  }
  return absl::OkStatus();
}

WorkerSlot MpiJob::slot() const {
  return {.workers_here = std::count(hosts_.begin(), hosts_.end(), host()),
          .local_index = std::count(hosts_.begin(), hosts_.begin() + rank(), host())};
}

WorkerIdentity MpiJob::identity() const { return {.name = NameOf(rank()), .node = host(), .host = host()}; }

void MpiJob::Shape(Config* config) const {
  config->elastic.workers = config->elastic.max_workers = environment_->size();
  config->elastic.min_workers = 1;  // so that a world without the lost is announced, and everybody knows
  if (config->train.threads == 0) {
    config->train.threads = std::max<int64_t>(1, AvailableProcessors() / slot().workers_here);
  }
}

absl::Status MpiJob::Announce(std::string* address) {
  announced_ = true;
  Text text{};
  if (address->size() >= text.size()) return absl::InternalError("the coordinator's address is too long");
  std::copy(address->begin(), address->end(), text.begin());
  RETURN_IF_ERROR(all_->Broadcast(0, BytesOf(text), SetupDeadline()));
  text.back() = 0;
  *address = text.data();
  return absl::OkStatus();
}

WorkerPeers MpiJob::Peers(const Config& config) const {
  // A stop ends the world for everybody, but not everybody hears of it at the same time.
  const std::chrono::milliseconds grace(config.elastic.heartbeat_timeout_ms * 2);
  WorkerPeers peers;
  peers.connects_alone = true;
  peers.connect = [this, grace](const World& world, int, const std::vector<std::vector<int>>& groups,
                                const std::stop_token& stop,
                                Deadline deadline) -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
    if (world.size() != environment_->size()) {
      EndBroken(absl::StrFormat("%d of %d workers remain (who was lost and why: events.jsonl)", world.size(),
                                environment_->size()));
    }
    std::vector<int> mpi_ranks;
    for (const Member& member : world.members) mpi_ranks.push_back(MpiRankOf(member));
    const auto give_up = [&](const std::vector<int>& missing) {
      EndBroken(absl::StrCat(NamesOf(world, missing), " did not connect to the new world in time"));
    };
    return environment_->Connect(world.generation, groups, deadline, {stop, grace, give_up}, mpi_ranks);
  };
  peers.on_failure = [grace](const absl::Status& status, const std::stop_token& stop) {
    const auto until = std::chrono::steady_clock::now() + grace;
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!stop.stop_requested()) EndBroken(std::string(status.message()));
  };
  return peers;
}

}  // namespace holdfast
