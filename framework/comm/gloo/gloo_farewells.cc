#include "framework/comm/gloo/gloo_farewells.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/comm/communicator.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {
namespace {

constexpr uint64_t kHelloNumber = ~uint64_t{0};
constexpr uint64_t kNeverNumber = ~uint64_t{1};

}  // namespace

GlooFarewells::GlooFarewells(std::shared_ptr<GlooLoop> loop, std::unique_ptr<GlooMesh> mesh, uint64_t generation,
                             const std::vector<std::vector<int>>& groups)
    : loop_(std::move(loop)), generation_(generation), channels_(groups.size()), mesh_(std::move(mesh)) {
  const auto size = static_cast<size_t>(mesh_->size());
  never_.resize(size);
  alive_.resize(size);
  gone_.resize(size, false);
  peers_of_.resize(size);
  for (size_t c = 0; c < groups.size(); ++c) {
    for (const int rank : groups[c]) {
      if (rank == mesh_->rank()) continue;
      channels_[c].peers.push_back(std::make_unique<Peer>());
      channels_[c].peers.back()->rank = rank;
      peers_of_[static_cast<size_t>(rank)].push_back(channels_[c].peers.back().get());
    }
  }
}

GlooFarewells::~GlooFarewells() {
  loop_->Unlisten(this);
  mesh_->Close();
}

void GlooFarewells::PostReceives() {
  for (int r = 0; r < mesh_->size(); ++r) {
    if (r == mesh_->rank()) continue;
    Buffer& alive = alive_[static_cast<size_t>(r)];
    alive = mesh_->Buffer(&never_[static_cast<size_t>(r)], 1);
    alive->recv(r, GlooSlot(generation_, kNeverNumber, 1));
  }
  for (size_t c = 0; c < channels_.size(); ++c) {
    for (const auto& peer : channels_[c].peers) {
      peer->receive = mesh_->Buffer(&peer->message, sizeof(Message));
      peer->receive->recv(peer->rank, GlooSlot(generation_, c, sizeof(Message)));
    }
  }
}

// Gloo sends a message once the receive is announced. The hello follows the announcements on the same connection, so
// who has received it can send its farewell at any moment.
absl::Status GlooFarewells::Start(absl::FunctionRef<absl::Status()> check) {
  const NoSigPipe quiet;
  RETURN_IF_ERROR(GlooCall([&] { PostReceives(); }));
  std::vector<std::byte> hello(static_cast<size_t>(mesh_->size()));
  const std::byte mine{};
  GlooTransfers transfers(*mesh_);
  const uint64_t slot = GlooSlot(generation_, kHelloNumber, 1);
  for (int r = 0; r < mesh_->size(); ++r) {
    if (r == mesh_->rank()) continue;
    transfers.AddReceive(r, slot, &hello[static_cast<size_t>(r)], 1);
    transfers.AddSend(r, slot, &mine, 1);
  }
  const absl::Status status = transfers.Run(check);
  if (!status.ok()) {
    const std::vector<int> ranks =
        transfers.broken_peer() >= 0 ? std::vector<int>{transfers.broken_peer()} : transfers.Missing();
    mesh_->Close();  // before the memory of the transfers goes
    const absl::Status named = Annotate(status, absl::StrCat("rank ", absl::StrJoin(ranks, ", ")));
    return absl::IsAborted(status) ? named : Blaming(named, ranks);
  }
  loop_->Listen(this);
  return absl::OkStatus();
}

void GlooFarewells::Say(int channel, Kind kind, const std::string& text) {
  const NoSigPipe quiet;
  Channel& mine = channels_[static_cast<size_t>(channel)];
  mine.outgoing.kind = kind;
  mine.outgoing.complete = 1;
  std::strncpy(mine.outgoing.text, text.c_str(), sizeof(mine.outgoing.text) - 1);
  mine.send = mesh_->Buffer(&mine.outgoing, sizeof(Message));
  const uint64_t slot = GlooSlot(generation_, static_cast<uint64_t>(channel), sizeof(Message));
  for (const auto& peer : mine.peers) {
    GlooCall([&] { mine.send->send(peer->rank, slot); }).IgnoreError();  // who is gone need not be told
  }
}

bool GlooFarewells::ConnectionEnded(int rank) {
  auto& alive = *alive_[static_cast<size_t>(rank)];
  alive.abortWaitRecv();  // so the wait does not wait
  return !GlooCall([&] { alive.waitRecv(nullptr, std::chrono::hours(1)); }).ok();
}

// On Gloo's thread, which writes the messages: what is complete now will not change. In a large world a tick looks at
// some of the ranks, so that the loop has time for bytes.
void GlooFarewells::OnTick() {
  constexpr size_t kRanksPerTick = 256;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < std::min(kRanksPerTick, gone_.size()); ++i) {
    LookAt(next_rank_);
    next_rank_ = (next_rank_ + 1) % gone_.size();
  }
}

void GlooFarewells::LookAt(size_t rank) {
  for (Peer* peer : peers_of_[rank]) {
    if (peer->received != Kind::kNone || peer->message.complete != 1) continue;
    peer->received = peer->message.kind;
    peer->message.text[sizeof(peer->message.text) - 1] = '\0';
    peer->reason = peer->message.text;
  }
  // After the messages: the end comes after the farewell.
  const int r = static_cast<int>(rank);
  if (r != mesh_->rank() && !gone_[rank]) gone_[rank] = ConnectionEnded(r);
}

GlooFarewells::News GlooFarewells::Read(int channel) {
  const std::lock_guard lock(mutex_);
  News news;
  for (const auto& peer : channels_[static_cast<size_t>(channel)].peers) {
    if (peer->received == Kind::kFailed && news.reason.empty()) news.reason = peer->reason;
    if (peer->received == Kind::kNone && gone_[static_cast<size_t>(peer->rank)]) news.crashed.push_back(peer->rank);
  }
  return news;
}

bool GlooFarewells::HasLeft(int channel, int rank) {
  const std::lock_guard lock(mutex_);
  for (const auto& peer : channels_[static_cast<size_t>(channel)].peers) {
    if (peer->rank == rank) return peer->received == Kind::kLeft;
  }
  return false;
}

}  // namespace holdfast
