// How long members of a world take to connect over Gloo, on this machine: processes of several ranks each, three meshes
// (the world, one group, farewells), from the last address told to the last member ready; and how fast all then gather
// 8 MiB of each, the median of 21. Both are medians, with the least and the most, of five worlds, one after the other.
//
//   gloo_connect RANKS PROCESSES [encrypt]

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
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
  std::atomic<double> gather_seconds;
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

double GatherSeconds(Communicator& world, Deadline deadline) {
  constexpr size_t kBytes = size_t{8} << 20;
  const auto size = static_cast<size_t>(world.size());
  std::vector<std::byte> mine(kBytes), all(size * kBytes);
  const std::vector<int64_t> counts(size, kBytes);
  std::vector<int64_t> starts(size);
  for (size_t r = 0; r < size; ++r) starts[r] = static_cast<int64_t>(r * kBytes);
  std::vector<double> seconds;
  for (int round = 0; round < 21; ++round) {
    const int64_t begun = Now();
    const absl::Status status = world.AllGatherV(mine, {absl::MakeSpan(all), counts, starts}, deadline);
    if (!status.ok()) std::printf("rank %d: %s\n", world.rank(), status.ToString().c_str());
    seconds.push_back(1e-9 * static_cast<double>(Now() - begun));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 10, seconds.end());
  return seconds[10];
}

void Connect(int rank, int size, bool encrypt, const SharedRendezvous& rendezvous, Report* reports) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  Timed timed(rendezvous.Member(rank), reports[rank]);
  const Deadline deadline = Clock::now() + std::chrono::minutes(5);
  auto communicators = ConnectGloo({.encrypt = encrypt}, rank, size, 1, {all, all}, timed, {}, deadline);
  if (!communicators.ok()) {
    std::printf("rank %d: %s\n", rank, communicators.status().ToString().c_str());
    return;
  }
  reports[rank].ready = Now();
  reports[rank].connected = 1;
  const absl::Status met = (*communicators)[0]->Barrier(deadline);
  if (!met.ok()) std::printf("rank %d: %s\n", rank, met.ToString().c_str());
  if (size <= 8) reports[rank].gather_seconds = GatherSeconds(*(*communicators)[0], deadline);
}

struct Figures {
  double connect_ms = 0;
  double gather_seconds = 0;  // 0: not measured
};

/// Nothing, and a line on stderr, if not all of its ranks connect.
std::optional<Figures> OfOneWorld(int size, int processes, bool encrypt) {
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
      ranks.emplace_back([&, rank] { Connect(rank, size, encrypt, rendezvous, reports); });
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
  if (connected < size) {
    std::fprintf(stderr, "%d of %d ranks connected\n", connected, size);
    return std::nullopt;
  }
  return Figures{1e-6 * static_cast<double>(ready - begun), reports[0].gather_seconds};
}

/// False if a world did not connect.
bool Run(int size, int processes, bool encrypt) {
  constexpr int kWorlds = 5;
  std::vector<double> milliseconds, rates;
  for (int i = 0; i < kWorlds; ++i) {
    const auto figures = OfOneWorld(size, processes, encrypt);
    if (!figures.has_value()) return false;
    milliseconds.push_back(figures->connect_ms);
    if (figures->gather_seconds > 0) rates.push_back(1e-9 * (size - 1) * (8 << 20) / figures->gather_seconds);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::sort(rates.begin(), rates.end());
  std::printf("%d ranks in %d processes connected in %.1f ms [%.1f-%.1f]; %d sockets each\n", size, processes,
              milliseconds[kWorlds / 2], milliseconds.front(), milliseconds.back(), 3 * (size - 1));
  if (!rates.empty()) {
    std::printf("%.2f GB/s [%.2f-%.2f] received by rank 0\n", rates[rates.size() / 2], rates.front(), rates.back());
  }
  return true;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const bool encrypt = argc == 4 && std::string(argv[3]) == "encrypt";
  if (argc != 3 && !encrypt) {
    std::fprintf(stderr, "usage: gloo_connect RANKS PROCESSES [encrypt]\n");
    return 2;
  }
  holdfast::RaiseOpenFileLimit();
  return holdfast::Run(std::atoi(argv[1]), std::atoi(argv[2]), encrypt) ? 0 : 1;
}
