#include "framework/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/gloo/gloo_call.h"
#include "framework/comm/gloo/gloo_farewells.h"
#include "framework/comm/gloo/gloo_member.h"
#include "framework/comm/gloo/gloo_mesh.h"

namespace holdfast {
namespace {

/// A mesh under construction and the world ranks of its members.
struct Group {
  std::vector<int> members;
  std::unique_ptr<GlooMesh> mesh;  // null if this rank is not a member

  int Position(int world_rank) const {
    const auto it = std::find(members.begin(), members.end(), world_rank);
    return it == members.end() ? -1 : static_cast<int>(it - members.begin());
  }
};

/// Interrupts the meshes when `stop` is requested or the deadline has come, until it is destroyed.
class Guard {
 public:
  Guard(std::vector<Group>& groups, std::stop_token stop, Deadline deadline)
      : thread_([this, &groups, stop = std::move(stop), deadline] {
          {
            std::unique_lock lock(mutex_);
            if (changed_.wait_until(lock, stop, deadline, [&] { return done_; })) return;
          }
          for (Group& group : groups) {
            if (group.mesh != nullptr) group.mesh->Interrupt();
          }
        }) {}
  ~Guard() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool done_ = false;
  std::jthread thread_;  // last: ends first
};

absl::Status Interruption(const std::stop_token& stop, Deadline deadline) {
  if (stop.stop_requested()) return absl::AbortedError("abandoned");
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError("took too long");
}

// A blob: the generation, then for every group of the sender, in order, one address for every other member.
std::string AddressBlob(int rank, uint64_t generation, std::vector<Group>& groups) {
  std::string blob(reinterpret_cast<const char*>(&generation), sizeof(generation));
  for (Group& group : groups) {
    for (const int member : group.members) {
      if (group.mesh == nullptr || member == rank) continue;
      const std::string address = group.mesh->AddressFor(group.Position(member));
      const auto size = static_cast<uint32_t>(address.size());
      blob.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(address);
    }
  }
  return blob;
}

/// The addresses that `sender` has for `rank`, one for every group of both, in order.
absl::StatusOr<std::vector<std::string>> ReadAddresses(const std::string& blob, int sender, int rank,
                                                       uint64_t generation, const std::vector<Group>& groups) {
  size_t at = 0;
  const auto read = [&](void* to, size_t size) {
    const bool fits = size <= blob.size() - at;
    if (fits) std::memcpy(to, blob.data() + at, size);
    at += fits ? size : 0;
    return fits;
  };
  const auto error = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", sender, " came to generation ", generation, why));
  };
  uint64_t theirs = 0;
  if (!read(&theirs, sizeof(theirs))) return error(" without a generation");
  if (theirs != generation) return error(absl::StrCat(" with generation ", theirs));
  std::vector<std::string> addresses;
  for (const Group& group : groups) {
    if (group.Position(sender) < 0) continue;
    for (const int member : group.members) {
      uint32_t size = 0;
      if (member == sender) continue;
      if (!read(&size, sizeof(size)) || size > blob.size() - at) return error(" with other groups");
      if (member == rank) addresses.emplace_back(blob, at, size);
      at += size;
    }
  }
  if (at != blob.size()) return error(" with other groups");
  return addresses;
}

absl::Status ConnectAll(int rank, uint64_t generation, std::vector<Group>& groups,
                        const std::vector<std::string>& blobs) {
  for (size_t peer = 0; peer < blobs.size(); ++peer) {
    const int sender = static_cast<int>(peer);
    if (sender == rank) continue;
    HF_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                        ReadAddresses(blobs[peer], sender, rank, generation, groups));
    size_t next = 0;
    for (Group& group : groups) {
      const int position = group.Position(sender);
      if (group.mesh == nullptr || position < 0) continue;
      HF_RETURN_IF_ERROR(Annotate(group.mesh->Connect(position, addresses[next++]), absl::StrCat("rank ", sender)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectGloo(const GlooOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline) {
  HF_RETURN_IF_ERROR(CheckGroups(rank, size, groups));
  HF_ASSIGN_OR_RETURN(const std::shared_ptr<GlooLoop> loop, GlooLoop::Open(options.host));
  const GlooLoop::Ticks quick(*loop, GlooLoop::Pace::kConnecting);

  std::vector<Group> all(groups.size() + 1);  // the last is the whole world, for the farewells
  for (size_t i = 0; i < groups.size(); ++i) all[i].members = groups[i];
  all.back().members.resize(static_cast<size_t>(size));
  std::iota(all.back().members.begin(), all.back().members.end(), 0);
  for (Group& group : all) {
    const int position = group.Position(rank);
    if (position < 0) continue;
    HF_ASSIGN_OR_RETURN(group.mesh, GlooMesh::Make(loop, position, static_cast<int>(group.members.size())));
  }

  HF_ASSIGN_OR_RETURN(const std::vector<std::string> blobs,
                      rendezvous.Exchange(AddressBlob(rank, generation, all), deadline));
  if (blobs.size() != static_cast<size_t>(size)) {
    return absl::InternalError(absl::StrCat("rendezvous of ", blobs.size(), " members for a world of ", size));
  }
  const auto check = [&] { return Interruption(stop, deadline); };
  const std::string what = absl::StrCat("rank ", rank, " connecting in generation ", generation);
  {
    const Guard guard(all, stop, deadline);
    const absl::Status connected = ConnectAll(rank, generation, all, blobs);
    if (!connected.ok()) {  // an interruption looks like anything
      const absl::Status why = check();
      return Annotate(why.ok() ? connected : Annotate(why, std::string(connected.message())), what);
    }
  }
  auto farewells = std::make_shared<GlooFarewells>(loop, std::move(all.back().mesh), generation, groups);
  HF_RETURN_IF_ERROR(Annotate(farewells->Start(check), what));
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (all[i].mesh == nullptr) continue;
    communicators[i] =
        std::make_unique<GlooMember>(std::move(all[i].mesh), farewells, static_cast<int>(i), groups[i], generation);
  }
  return communicators;
}

}  // namespace holdfast
