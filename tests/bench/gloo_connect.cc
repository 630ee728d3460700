// How long members of a world take to connect over Gloo, on this machine: processes of several ranks each, three meshes
// (the world, one group, farewells), from the last address told to the last member ready.
//
//   gloo_connect RANKS PROCESSES

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "framework/base/open_files.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "tests/framework/comm/shared_rendezvous.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

struct Report {
  std::atomic<int64_t> exchanged, ready;  // nanoseconds of the steady clock, which all processes share
  std::atomic<int> connected;
};

int64_t Now() { return Clock::now().time_since_epoch().count(); }

/// Notes when the addresses are there.
class Timed final : public Rendezvous {
 public:
  Timed(std::unique_ptr<Rendezvous> inner, Report& report) : inner_(std::move(inner)), report_(report) {}
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override {
    auto all = inner_->Exchange(mine, deadline);
    report_.exchanged = Now();
    return all;
  }

 private:
  std::unique_ptr<Rendezvous> inner_;
  Report& report_;
};

void Connect(int rank, int size, const SharedRendezvous& rendezvous, Report* reports) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  Timed timed(rendezvous.Member(rank), reports[rank]);
  const Deadline deadline = Clock::now() + std::chrono::minutes(5);
  auto communicators = ConnectGloo({}, rank, size, 1, {all, all}, timed, {}, deadline);
  if (!communicators.ok()) {
    std::printf("rank %d: %s\n", rank, communicators.status().ToString().c_str());
    return;
  }
  reports[rank].ready = Now();
  reports[rank].connected = 1;
  const absl::Status met = (*communicators)[0]->Barrier(deadline);
  if (!met.ok()) std::printf("rank %d: %s\n", rank, met.ToString().c_str());
}

void Run(int size, int processes) {
  const SharedRendezvous rendezvous(size);
  auto* reports = Shared<Report>(static_cast<size_t>(size));
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    std::vector<std::thread> ranks;
    for (int rank = p; rank < size; rank += processes) {
      ranks.emplace_back([&, rank] { Connect(rank, size, rendezvous, reports); });
    }
    for (std::thread& rank : ranks) rank.join();
    std::fflush(stdout);
    _exit(0);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  int64_t begun = 0, ready = 0;
  int connected = 0;
  for (int rank = 0; rank < size; ++rank) {
    begun = std::max<int64_t>(begun, reports[rank].exchanged);
    ready = std::max<int64_t>(ready, reports[rank].ready);
    connected += reports[rank].connected;
  }
  std::printf("%d of %d ranks in %d processes connected in %.1f ms; %d sockets each\n", connected, size, processes,
              1e-6 * static_cast<double>(ready - begun), 3 * (size - 1));
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: gloo_connect RANKS PROCESSES\n");
    return 2;
  }
  holdfast::RaiseOpenFileLimit();
  holdfast::Run(std::atoi(argv[1]), std::atoi(argv[2]));
  return 0;
}
