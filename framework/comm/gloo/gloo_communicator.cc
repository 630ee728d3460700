#include "framework/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/gloo/connector.h"
#include "framework/comm/gloo/gloo_farewells.h"
#include "framework/comm/gloo/gloo_member.h"
#include "framework/comm/gloo/gloo_mesh.h"

namespace holdfast {
namespace {

absl::Status Interruption(const std::stop_token& stop, Deadline deadline) {
  if (stop.stop_requested()) return absl::AbortedError("abandoned");
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError("took too long");
}

uint32_t DigestOf(const std::vector<std::vector<int>>& groups) {
  uint32_t digest = 0;
  const auto add = [&](uint32_t value) { digest = (digest ^ value) * 0x01000193u + 0x9e3779b9u; };
  for (const std::vector<int>& group : groups) {
    add(static_cast<uint32_t>(group.size()));
    for (const int rank : group) add(static_cast<uint32_t>(rank));
  }
  return digest;
}

/// What the others have told, by rank.
absl::StatusOr<std::vector<MemberAddress>> ReadAddresses(const std::vector<std::string>& blobs,
                                                         const MemberAddress& mine) {
  std::vector<MemberAddress> members;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    absl::StatusOr<MemberAddress> member = DecodeMemberAddress(blobs[rank]);
    const auto error = [&](const std::string& why) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " came to generation ", mine.generation, " ", why));
    };
    if (!member.ok()) return error("without an address");
    if (member->generation != mine.generation) return error(absl::StrCat("with generation ", member->generation));
    if (member->groups != mine.groups) return error("with other groups");
    TakeInterface(mine.listener, &member->listener);
    members.push_back(*member);
  }
  return members;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectGloo(const GlooOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline) {
  RETURN_IF_ERROR(CheckGroups(rank, size, groups));
  ASSIGN_OR_RETURN(const std::shared_ptr<GlooLoop> loop, GlooLoop::Open(options.host));
  ASSIGN_OR_RETURN(const Connector connector, Connector::Listen(loop->address(), options.encrypt));
  const MemberAddress mine{generation, connector.key(), DigestOf(groups), connector.address()};
  ASSIGN_OR_RETURN(const std::vector<std::string> blobs, rendezvous.Exchange(EncodeMemberAddress(mine), deadline));
  if (blobs.size() != static_cast<size_t>(size)) {
    return absl::InternalError(absl::StrCat("rendezvous of ", blobs.size(), " members for a world of ", size));
  }
  ASSIGN_OR_RETURN(const std::vector<MemberAddress> members, ReadAddresses(blobs, mine));

  const std::string what = absl::StrCat("rank ", rank, " connecting in generation ", generation);
  std::vector<std::vector<int>> all = groups;  // and the whole world, for the farewells
  all.emplace_back(static_cast<size_t>(size));
  std::iota(all.back().begin(), all.back().end(), 0);
  auto connections = connector.Connect(rank, members, all, stop, deadline);
  if (!connections.ok()) return Annotate(connections.status(), what);
  std::vector<std::unique_ptr<GlooMesh>> meshes(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto position = std::find(all[i].begin(), all[i].end(), rank) - all[i].begin();
    if (position == std::ssize(all[i])) continue;
    auto mesh = GlooMesh::Make(loop, static_cast<int>(position), std::move((*connections)[i]));
    if (!mesh.ok()) return Annotate(mesh.status(), what);
    meshes[i] = *std::move(mesh);
  }
  auto farewells = std::make_shared<GlooFarewells>(loop, std::move(meshes.back()), generation, groups);
  const auto check = [&] { return Interruption(stop, deadline); };
  RETURN_IF_ERROR(Annotate(farewells->Start(check), what));
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (meshes[i] == nullptr) continue;
    communicators[i] =
        std::make_unique<GlooMember>(std::move(meshes[i]), farewells, static_cast<int>(i), groups[i], generation);
  }
  return communicators;
}

}  // namespace holdfast
