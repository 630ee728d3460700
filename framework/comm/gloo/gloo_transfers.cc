#include "framework/comm/gloo/gloo_transfers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {
namespace {

// Waits are ended by ticks. Gloo closes everything when a wait times out, so this is never to be reached.
constexpr std::chrono::hours kNever{10'000};

uint64_t Mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t GlooSlot(uint64_t space, uint64_t number, size_t size) {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
  return Mix(Mix(Mix(space + kGamma) + number + kGamma) + size + kGamma);
}

GlooTransfers::~GlooTransfers() { mesh_.loop().Unlisten(this); }

void GlooTransfers::AddSend(int peer, uint64_t slot, const void* data, size_t size) {
  transfers_.push_back({peer, slot, false, false, mesh_.Buffer(const_cast<void*>(data), size)});
}

void GlooTransfers::AddReceive(int peer, uint64_t slot, void* data, size_t size) {
  transfers_.push_back({peer, slot, true, false, mesh_.Buffer(data, size)});
}

void GlooTransfers::OnTick() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(posted_, true) && mesh_.WhileOpen([&] { Post(); }) && unreachable_peer_ < 0) return;
  if (current_ == nullptr) return;
  current_->receive ? current_->buffer->abortWaitRecv() : current_->buffer->abortWaitSend();
}

void GlooTransfers::Post() {
  for (Transfer& t : transfers_) {
    const absl::Status status =
        GlooCall([&] { t.receive ? t.buffer->recv(t.peer, t.slot) : t.buffer->send(t.peer, t.slot); });
    if (!status.ok() && unreachable_peer_ < 0) unreachable_peer_ = t.peer;
  }
}

absl::Status GlooTransfers::WaitBriefly(Transfer& transfer) {
  const auto set_current = [&](Transfer* current) {
    const std::lock_guard lock(mutex_);
    current_ = current;
  };
  set_current(&transfer);
  absl::Status status = GlooCall([&] {
    transfer.done =
        transfer.receive ? transfer.buffer->waitRecv(nullptr, kNever) : transfer.buffer->waitSend(nullptr, kNever);
  });
  set_current(nullptr);
  if (!status.ok()) broken_peer_ = transfer.peer;
  if (!status.ok() || transfer.done) return status;
  const std::lock_guard lock(mutex_);
  if (unreachable_peer_ < 0) return absl::OkStatus();
  broken_peer_ = unreachable_peer_;
  return absl::UnavailableError("the connection has ended");
}

absl::Status GlooTransfers::Run(absl::FunctionRef<absl::Status()> check) {
  if (transfers_.empty()) return absl::OkStatus();
  const GlooLoop::Ticks ticks(mesh_.loop(), GlooLoop::Pace::kWaiting);
  mesh_.loop().Listen(this);
  mesh_.loop().CallSoon(this);
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (Transfer& transfer : transfers_) {
      if (transfer.done) continue;
      RETURN_IF_ERROR(WaitBriefly(transfer));
      if (transfer.done) continue;
      all_done = false;
      RETURN_IF_ERROR(check());
    }
  }
  return absl::OkStatus();
}

void GlooTransfers::Interrupt() { mesh_.loop().CallSoon(this); }

std::vector<int> GlooTransfers::Missing() {
  const GlooLoop::Ticks quick(mesh_.loop(), GlooLoop::Pace::kConnecting);
  const int broken_peer = broken_peer_;
  std::vector<int> ranks;
  for (Transfer& transfer : transfers_) {
    // Twice: an abort that came at the end of an earlier wait ends the first look at once, even of what is done.
    for (int look = 0; look < 2 && !transfer.done; ++look) WaitBriefly(transfer).IgnoreError();
    if (!transfer.done) ranks.push_back(transfer.peer);
  }
  broken_peer_ = broken_peer;  // looking is no failure
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace holdfast
