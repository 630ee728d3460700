#include "framework/comm/cuda/nccl_member.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/comm/cuda/nccl_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kWithoutNaps{100};  // a nap takes some 75 at least
constexpr std::chrono::microseconds kQueryNap{20};

}  // namespace

NcclMember::~NcclMember() {
  resources_->End(failure_.ok() ? NcclResources::Ending::kFinish : NcclResources::Ending::kRevoke);
}

absl::Status NcclMember::AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckGather(input, output, rank_, size_));
  const auto post = [&]() -> absl::Status {
    if (!Sends(rank_)) RETURN_IF_ERROR(PostCopy(output[rank_], input));
    for (int r = 0; r < size_; ++r) {
      if (!Sends(r)) continue;
      RETURN_IF_ERROR(PostSend(r, input));
      RETURN_IF_ERROR(PostReceive(r, output[r]));
    }
    return absl::OkStatus();
  };
  return RunCollective("all-gather", post, deadline);
}

absl::Status NcclMember::AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckExchange(input, output, rank_, size_));
  const auto post = [&]() -> absl::Status {
    if (!Sends(rank_)) RETURN_IF_ERROR(PostCopy(output[rank_], input[rank_]));
    for (int r = 0; r < size_; ++r) {
      if (!Sends(r)) continue;
      RETURN_IF_ERROR(PostSend(r, input[r]));
      RETURN_IF_ERROR(PostReceive(r, output[r]));
    }
    return absl::OkStatus();
  };
  return RunCollective("all-to-all", post, deadline);
}

// Not by ncclBroadcast: it would connect in a way of its own at its first call, in the middle of everything.
absl::Status NcclMember::Broadcast(int root, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank(root, size_, "broadcast from"));
  const auto post = [&]() -> absl::Status {
    if (rank_ != root) return PostReceive(root, data);
    for (int r = 0; r < size_; ++r) {
      if (r != root) RETURN_IF_ERROR(PostSend(r, data));
    }
    return absl::OkStatus();
  };
  return RunCollective("broadcast", post, deadline);
}

absl::Status NcclMember::Barrier(Deadline deadline) {
  const auto post = [&]() -> absl::Status {
    for (int r = 0; r < size_; ++r) {
      if (!Sends(r)) continue;
      RETURN_IF_ERROR(PostSend(r, resources_->words().subspan(static_cast<size_t>(r), 1)));
      RETURN_IF_ERROR(PostReceive(r, resources_->words().subspan(static_cast<size_t>(size_ + r), 1)));
    }
    return absl::OkStatus();
  };
  return RunCollective("barrier", post, deadline);
}

absl::Status NcclMember::Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(to, rank_, size_, "send to"));
  const auto post = [&] { return PostSend(to, data); };
  return Run(absl::StrCat("send to ", to, " with tag ", tag), post, absl::StrCat("rank ", to), deadline);
}

absl::Status NcclMember::Receive(int from, uint32_t tag, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(from, rank_, size_, "receive from"));
  const auto post = [&] { return PostReceive(from, data); };
  return Run(absl::StrCat("receive from ", from, " with tag ", tag), post, absl::StrCat("rank ", from), deadline);
}

absl::Status NcclMember::PostSend(int to, ConstBytes data) {
  if (data.empty()) return absl::OkStatus();
  return NcclStatus(ncclSend(data.data(), data.size(), ncclUint8, to, resources_->comm(), resources_->stream()),
                    "ncclSend");
}

absl::Status NcclMember::PostReceive(int from, Bytes data) {
  if (data.empty()) return absl::OkStatus();
  return NcclStatus(ncclRecv(data.data(), data.size(), ncclUint8, from, resources_->comm(), resources_->stream()),
                    "ncclRecv");
}

absl::Status NcclMember::PostCopy(Bytes to, ConstBytes from) {
  if (from.empty() || to.data() == from.data()) return absl::OkStatus();
  return CudaStatus(
      cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, resources_->stream()),
      "cudaMemcpyAsync");
}

absl::Status NcclMember::RunCollective(const char* name, const Post& post, Deadline deadline) {
  const uint64_t number = sequence_++;
  return Run(absl::StrCat(name, " number ", number), post, Others(), deadline);
}

// The stream's mark may only be set when NCCL has put its work on the stream, which happens in the background.
absl::Status NcclMember::Run(const std::string& call, const Post& post, const std::string& others, Deadline deadline) {
  absl::Status status = Launch(post);
  if (status.ok()) status = Wait([&] { return resources_->Progress(); }, others, deadline);
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    status = failure_.ok() ? resources_->Mark() : failure_;
  }
  const auto done = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const bool healthy, resources_->Progress());
    ASSIGN_OR_RETURN(const bool complete, resources_->StreamDone());
    return healthy && complete;
  };
  if (status.ok()) status = Wait(done, others, deadline);
  if (status.ok()) return status;
  absl::Status failure =
      Fail(Annotate(status, absl::StrCat("rank ", rank_, " of generation ", generation_, ": ", call)));
  if (resources_->End(NcclResources::Ending::kRevoke)) return failure;
  const std::string stuck = absl::StrCat(std::string(failure.message()), "; and NCCL does not release its memory");
  if (options_.on_stuck != nullptr) options_.on_stuck(stuck);
  return absl::InternalError(stuck);
}

absl::Status NcclMember::Launch(const Post& post) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(options_.device), "cudaSetDevice"));
  RETURN_IF_ERROR(NcclStatus(ncclGroupStart(), "ncclGroupStart"));
  const absl::Status posted = post();
  const absl::Status ended = NcclStatus(ncclGroupEnd(), "ncclGroupEnd");
  return posted.ok() ? ended : posted;
}

// The failure is looked at last: a result that came with an abort belongs to a generation that has ended.
absl::Status NcclMember::Wait(const std::function<absl::StatusOr<bool>()>& done, const std::string& others,
                              Deadline deadline) {
  const Clock::time_point start = Clock::now();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      RETURN_IF_ERROR(failure_);
      ASSIGN_OR_RETURN(const bool complete, done());
      if (complete) return absl::OkStatus();
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return absl::DeadlineExceededError(absl::StrCat("waited for ", others));
    if (now - start < kWithoutNaps) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kQueryNap);
    }
  }
}

void NcclMember::Abort(const std::string& reason) {
  Fail(absl::AbortedError(absl::StrCat("rank ", rank_, " of generation ", generation_, " aborted: ", reason)))
      .IgnoreError();
}

// NCCL itself is ended by the thread that uses it, or by the destructor: it may take a while.
absl::Status NcclMember::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  failure_ = absl::AbortedError(std::string(status.message()));
  return status;
}

std::string NcclMember::Others() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) ranks.push_back(r);
  }
  return absl::StrCat("some of ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace holdfast
