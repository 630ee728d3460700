#include "tests/framework/comm/in_process_rendezvous.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr const char* kNames[] = {"all-gather", "all-to-all", "broadcast", "barrier"};

// `to` and `from` may be the same memory, and empty spans may have no memory at all.
void CopyBytes(Bytes to, ConstBytes from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

std::string RankNames(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace

InProcessRendezvous::InProcessRendezvous(int size, uint64_t generation)
    : size_(size),
      generation_(generation),
      joined_(static_cast<size_t>(size), false),
      left_(static_cast<size_t>(size), false) {
  for (Round& round : rounds_) round.arguments.resize(static_cast<size_t>(size));
}

absl::Status InProcessRendezvous::Join(int rank) {
  const Lock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  if (joined_[static_cast<size_t>(rank)])
    return absl::AlreadyExistsError(absl::StrCat("rank ", rank, " has joined before"));
  joined_[static_cast<size_t>(rank)] = true;
  return absl::OkStatus();
}

void InProcessRendezvous::Leave(int rank) {
  const Lock lock(mutex_);
  left_[static_cast<size_t>(rank)] = true;
  changed_.notify_all();
}

void InProcessRendezvous::Abort(const std::string& reason) {
  const Lock lock(mutex_);
  Fail(absl::AbortedError(absl::StrCat("generation ", generation_, " was aborted: ", reason))).IgnoreError();
}

// The one who finds a failure returns it with its own code; everybody else is told that the world was aborted by it.
absl::Status InProcessRendezvous::Fail(const absl::Status& status) {
  if (failure_.ok()) {
    failure_ = absl::IsAborted(status) ? status : absl::AbortedError(std::string(status.message()));
    changed_.notify_all();
  }
  return status;
}

absl::Status InProcessRendezvous::Wait(Lock& lock, Deadline deadline, const std::string& what,
                                       const std::function<bool()>& ready,
                                       const std::function<std::vector<int>()>& missing) {
  const auto gone = [&] {
    std::vector<int> ranks = missing();
    std::erase_if(ranks, [&](int r) { return !left_[static_cast<size_t>(r)]; });
    return ranks;
  };
  const bool woken = changed_.wait_until(lock, deadline, [&] { return ready() || !failure_.ok() || !gone().empty(); });
  if (ready()) return absl::OkStatus();
  RETURN_IF_ERROR(failure_);
  if (!woken) return Fail(absl::DeadlineExceededError(absl::StrCat(what, " waited for ", RankNames(missing()))));
  return Fail(absl::UnavailableError(absl::StrCat(what, ": ", RankNames(gone()), " left")));
}

absl::Status InProcessRendezvous::WaitUntilFull(Lock& lock, int rank, Round& round, Deadline deadline) {
  const auto absent = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (round.arguments[static_cast<size_t>(r)] == nullptr) ranks.push_back(r);
    }
    return ranks;
  };
  const char* name = kNames[static_cast<int>(round.arguments[static_cast<size_t>(rank)]->kind)];
  const std::string what =
      absl::StrCat("rank ", rank, " of generation ", generation_, ": ", name, " number ", round.sequence);
  return Wait(
      lock, deadline, what, [&] { return round.full(); }, absent);
}

absl::Status InProcessRendezvous::Collective(int rank, uint64_t sequence, const Arguments& arguments,
                                             Deadline deadline) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  Round& round = rounds_[sequence % 2];
  if (round.sequence != sequence) {
    std::fill(round.arguments.begin(), round.arguments.end(), nullptr);
    round.sequence = sequence;
    round.arrived = round.copied = 0;
  }
  round.arguments[static_cast<size_t>(rank)] = &arguments;
  if (++round.arrived == size_) {
    const absl::Status agreement = CheckAgreement(round);
    if (!agreement.ok()) {
      --round.arrived;  // it stays empty for ever: nobody copies
      return Fail(agreement);
    }
    changed_.notify_all();
  }
  RETURN_IF_ERROR(WaitUntilFull(lock, rank, round, deadline));

  lock.unlock();
  Copy(round, rank);
  lock.lock();
  if (++round.copied == size_) changed_.notify_all();
  changed_.wait(lock, [&] { return round.sequence != sequence || round.copied == size_; });
  return absl::OkStatus();  // complete, even if the world has failed since
}

absl::Status InProcessRendezvous::CheckAgreement(const Round& round) const {
  const Arguments& first = *round.arguments[0];
  for (int r = 0; r < size_; ++r) {
    const Arguments& a = *round.arguments[static_cast<size_t>(r)];
    const auto refuse = [&](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat(kNames[static_cast<int>(first.kind)], " number ", round.sequence,
                                                     " of generation ", generation_, ": rank ", r, " ", why));
    };
    if (a.kind != first.kind) return refuse(absl::StrCat("is in a ", kNames[static_cast<int>(a.kind)]));
    if (a.kind == Kind::kBroadcast && (a.root != first.root || a.output.bytes.size() != first.output.bytes.size())) {
      return refuse("has another root or size than rank 0");
    }
    if (a.kind == Kind::kAllGatherV && a.output.counts != first.output.counts) {
      return refuse("has other counts than rank 0");
    }
    for (int to = 0; a.kind == Kind::kAllToAllV && to < size_; ++to) {
      const int64_t sent = a.input.counts[static_cast<size_t>(to)];
      const int64_t expected = round.arguments[static_cast<size_t>(to)]->output.counts[static_cast<size_t>(r)];
      if (sent != expected) return refuse(absl::StrCat("sends ", sent, " bytes to ", to, ", which expects ", expected));
    }
  }
  return absl::OkStatus();
}

void InProcessRendezvous::Copy(const Round& round, int rank) const {
  const Arguments& mine = *round.arguments[static_cast<size_t>(rank)];
  if (mine.kind == Kind::kBroadcast && rank != mine.root) {
    CopyBytes(mine.output.bytes, round.arguments[static_cast<size_t>(mine.root)]->input.bytes);
  }
  if (mine.kind != Kind::kAllGatherV && mine.kind != Kind::kAllToAllV) return;
  for (int i = 0; i < size_; ++i) {
    const int from = (rank + i) % size_;  // not all from rank 0 first
    const RankSlices<ConstBytes>& input = round.arguments[static_cast<size_t>(from)]->input;
    CopyBytes(mine.output[from], mine.kind == Kind::kAllGatherV ? input.bytes : input[rank]);
  }
}

InProcessRendezvous::Message* InProcessRendezvous::FindOffer(int from, int to, uint32_t tag) {
  const auto it = std::find_if(offers_.begin(), offers_.end(), [&](const Message* m) {
    return m->from == from && m->to == to && m->tag == tag && m->state == Message::kOffered;
  });
  return it == offers_.end() ? nullptr : *it;
}

absl::Status InProcessRendezvous::Send(int from, int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  Message message{from, to, tag, data};
  const auto place = offers_.insert(offers_.end(), &message);
  changed_.notify_all();
  const std::string what =
      absl::StrCat("rank ", from, " of generation ", generation_, ": send to ", to, " with tag ", tag);
  absl::Status taken = Wait(
      lock, deadline, what, [&] { return message.state != Message::kOffered; }, [&] { return std::vector<int>{to}; });
  changed_.wait(lock, [&] { return message.state != Message::kTaken; });
  offers_.erase(place);
  return taken;
}

absl::Status InProcessRendezvous::Receive(int from, int to, uint32_t tag, Bytes data, Deadline deadline) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  Message* message = nullptr;
  const std::string what =
      absl::StrCat("rank ", to, " of generation ", generation_, ": receive from ", from, " with tag ", tag);
  RETURN_IF_ERROR(Wait(
      lock, deadline, what, [&] { return (message = FindOffer(from, to, tag)) != nullptr; },
      [&] { return std::vector<int>{from}; }));
  if (message->data.size() != data.size()) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat(what, ": ", data.size(), " bytes are expected, ", message->data.size(), " were sent")));
  }
  message->state = Message::kTaken;
  lock.unlock();
  CopyBytes(data, message->data);
  lock.lock();
  message->state = Message::kDone;
  changed_.notify_all();
  return absl::OkStatus();
}

}  // namespace holdfast
