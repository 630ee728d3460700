#include "framework/comm/gloo/gloo_member.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"

namespace holdfast {
namespace {

// How long a broken connection waits for its explanation, which comes by another connection; and how often it looks at
// least, as the time may pass while this process stands still.
constexpr std::chrono::milliseconds kExplanationLimit{200};
constexpr int kExplanationLooks = 200;

void CopyBytes(Bytes to, ConstBytes from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

GlooMember::GlooMember(std::unique_ptr<GlooMesh> mesh, std::shared_ptr<GlooFarewells> farewells, int channel,
                       std::vector<int> members, uint64_t generation)
    : farewells_(std::move(farewells)),
      channel_(channel),
      members_(std::move(members)),
      generation_(generation),
      mesh_(std::move(mesh)) {}

GlooMember::~GlooMember() {
  if (failure_.ok()) farewells_->Say(channel_, GlooFarewells::Kind::kLeft, "");
}

absl::Status GlooMember::AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckGather(input, output, rank(), size()));
  std::vector<Message> messages;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) messages.push_back({r, input, output[r]});
  }
  RETURN_IF_ERROR(ExchangeCollective("all-gather", messages, deadline));
  CopyBytes(output[rank()], input);
  return absl::OkStatus();
}

absl::Status GlooMember::AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckExchange(input, output, rank(), size()));
  std::vector<Message> messages;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) messages.push_back({r, input[r], output[r]});
  }
  RETURN_IF_ERROR(ExchangeCollective("all-to-all", messages, deadline));
  CopyBytes(output[rank()], input[rank()]);
  return absl::OkStatus();
}

absl::Status GlooMember::Broadcast(int root, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank(root, size(), "broadcast from"));
  std::vector<Message> messages;
  if (rank() != root) messages.push_back({root, {}, data});
  for (int r = 0; rank() == root && r < size(); ++r) {
    if (r != root) messages.push_back({r, data, {}});
  }
  return ExchangeCollective("broadcast", messages, deadline);
}

absl::Status GlooMember::Barrier(Deadline deadline) {
  const std::byte mine{};
  std::vector<std::byte> theirs(static_cast<size_t>(size()));
  std::vector<Message> messages;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) messages.push_back({r, {&mine, 1}, {&theirs[static_cast<size_t>(r)], 1}});
  }
  return ExchangeCollective("barrier", messages, deadline);
}

absl::Status GlooMember::Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(to, rank(), size(), "send to"));
  return Exchange(absl::StrCat("send to ", to, " with tag ", tag), ~uint64_t{tag}, {{to, data, {}}}, deadline);
}

absl::Status GlooMember::Receive(int from, uint32_t tag, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(from, rank(), size(), "receive from"));
  return Exchange(absl::StrCat("receive from ", from, " with tag ", tag), ~uint64_t{tag}, {{from, {}, data}}, deadline);
}

absl::Status GlooMember::ExchangeCollective(const char* name, const std::vector<Message>& messages, Deadline deadline) {
  const uint64_t number = sequence_++;
  return Exchange(absl::StrCat(name, " number ", number), number, messages, deadline);
}

absl::Status GlooMember::Exchange(const std::string& call, uint64_t number, const std::vector<Message>& messages,
                                  Deadline deadline) {
  GlooTransfers transfers(*mesh_);
  const auto slot = [&](size_t size) { return GlooSlot(generation_, number, size); };
  for (const Message& m : messages) {
    if (!m.receive.empty()) transfers.AddReceive(m.peer, slot(m.receive.size()), m.receive.data(), m.receive.size());
  }
  for (const Message& m : messages) {
    if (!m.send.empty()) transfers.AddSend(m.peer, slot(m.send.size()), m.send.data(), m.send.size());
  }
  RETURN_IF_ERROR(SetCurrent(&transfers));
  const std::string what = absl::StrCat("rank ", rank(), " of generation ", generation_, ": ", call);
  absl::Status status = transfers.Run([&] { return Check(what, transfers, deadline); });
  const absl::Status failure = SetCurrent(nullptr);
  if (status.ok()) return status;  // complete, even if the world has failed since
  RETURN_IF_ERROR(failure);
  return Fail(transfers.broken_peer() >= 0 ? Explain(what, transfers.broken_peer()) : status);
}

absl::Status GlooMember::SetCurrent(GlooTransfers* transfers) {
  const std::lock_guard lock(mutex_);
  current_ = failure_.ok() ? transfers : nullptr;
  return failure_;
}

absl::Status GlooMember::Check(const std::string& what, GlooTransfers& transfers, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
  }
  RETURN_IF_ERROR(CheckFarewells(what));
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  std::vector<int> missing = transfers.Missing();
  if (missing.empty()) return absl::OkStatus();  // it has completed while we looked
  RETURN_IF_ERROR(CheckFarewells(what));         // it is this process that was frozen, and the others have said so
  for (int& rank : missing) rank = members_[static_cast<size_t>(rank)];
  return Blaming(absl::DeadlineExceededError(absl::StrCat(what, " waited for ", Name(missing))), missing);
}

absl::Status GlooMember::CheckFarewells(const std::string& what) {
  const GlooFarewells::News news = farewells_->Read(channel_);
  if (!news.crashed.empty()) {
    return Blaming(absl::UnavailableError(
                       absl::StrCat(what, ": ", Name(news.crashed), " closed its connections without giving a reason")),
                   news.crashed);
  }
  return news.reason.empty() ? absl::OkStatus() : absl::AbortedError(news.reason);
}

absl::Status GlooMember::Explain(const std::string& what, int peer) {
  const GlooLoop::Ticks quick(mesh_->loop(), GlooLoop::Pace::kConnecting);
  const Deadline limit = std::chrono::steady_clock::now() + kExplanationLimit;
  const int world_rank = members_[static_cast<size_t>(peer)];
  for (int looks = 0; looks < kExplanationLooks || std::chrono::steady_clock::now() < limit; ++looks) {
    RETURN_IF_ERROR(CheckFarewells(what));
    if (farewells_->HasLeft(channel_, world_rank)) {
      return Blaming(absl::UnavailableError(absl::StrCat(what, ": ", Name({world_rank}), " left")), {world_rank});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Blaming(absl::UnavailableError(absl::StrCat(what, ": ", Name({world_rank}), " closed the connection")),
                 {world_rank});
}

void GlooMember::Abort(const std::string& reason) {
  Fail(absl::AbortedError(absl::StrCat("rank ", rank(), " of generation ", generation_, " aborted: ", reason)))
      .IgnoreError();
}

// The others are told before the connections close, so that they know why.
absl::Status GlooMember::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  const std::string message(status.message());
  failure_ = absl::AbortedError(message);
  farewells_->Say(channel_, GlooFarewells::Kind::kFailed, message);
  mesh_->Close();
  if (current_ != nullptr) current_->Interrupt();
  return status;
}

std::string GlooMember::Name(const std::vector<int>& world_ranks) const {
  std::vector<int> ranks;
  for (const int w : world_ranks) {
    ranks.push_back(static_cast<int>(std::find(members_.begin(), members_.end(), w) - members_.begin()));
  }
  std::string names = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
  if (ranks == world_ranks) return names;
  return absl::StrCat(names, " (in the world: ", absl::StrJoin(world_ranks, ", "), ")");
}

}  // namespace holdfast
