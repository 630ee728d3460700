#include "framework/comm/communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr const char* kBlamedPayload = "holdfast/blamed-ranks";

}  // namespace

absl::Status Blaming(absl::Status status, absl::Span<const int> world_ranks) {
  status.SetPayload(kBlamedPayload, absl::Cord(absl::StrJoin(world_ranks, ",")));
  return status;
}

std::vector<int> BlamedRanks(const absl::Status& status) {
  std::vector<int> ranks;
  const auto payload = status.GetPayload(kBlamedPayload);
  if (!payload.has_value()) return ranks;
  for (const auto& text : absl::StrSplit(std::string(*payload), ',', absl::SkipEmpty())) {
    int rank = 0;
    if (absl::SimpleAtoi(text, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status CheckSlices(RankSlices<ConstBytes> slices, int size, const char* what) {
  const auto ranks = static_cast<size_t>(size);
  if (slices.counts.size() != ranks || slices.displacements.size() != ranks) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", slices.counts.size(), " counts and ",
                                                   slices.displacements.size(), " displacements for ", size, " ranks"));
  }
  const auto bytes = static_cast<int64_t>(slices.bytes.size());
  for (size_t r = 0; r < ranks; ++r) {
    const int64_t begin = slices.displacements[r], count = slices.counts[r];
    if (begin >= 0 && count >= 0 && begin <= bytes && count <= bytes - begin) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": slice ", r, " is ", count, " bytes from ", begin, ", but ", bytes, " bytes are there"));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputSlices(RankSlices<Bytes> slices, int size, const char* what) {
  RETURN_IF_ERROR(CheckSlices({slices.bytes, slices.counts, slices.displacements}, size, what));
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (size_t r = 0; r < slices.counts.size(); ++r) {
    if (slices.counts[r] > 0) ranges.emplace_back(slices.displacements[r], slices.displacements[r] + slices.counts[r]);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": two slices overlap at byte ", ranges[i].first));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGather(ConstBytes input, RankSlices<Bytes> output, int rank, int size) {
  RETURN_IF_ERROR(CheckOutputSlices(output, size, "all-gather output"));
  const int64_t count = output.counts[static_cast<size_t>(rank)];
  if (static_cast<int64_t>(input.size()) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("all-gather: rank ", rank, " brings ", input.size(), " bytes, its count is ", count));
}

absl::Status CheckExchange(RankSlices<ConstBytes> input, RankSlices<Bytes> output, int rank, int size) {
  RETURN_IF_ERROR(CheckSlices(input, size, "all-to-all input"));
  RETURN_IF_ERROR(CheckOutputSlices(output, size, "all-to-all output"));
  const int64_t sent = input.counts[static_cast<size_t>(rank)], expected = output.counts[static_cast<size_t>(rank)];
  if (sent == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("all-to-all: rank ", rank, " sends ", sent, " bytes to itself and expects ", expected));
}

absl::Status CheckRank(int other, int size, const char* what) {
  if (other >= 0 && other < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " rank ", other, " in a world of ", size));
}

absl::Status CheckPeer(int other, int rank, int size, const char* what) {
  if (other != rank) return CheckRank(other, size, what);
  return absl::InvalidArgumentError(absl::StrCat(what, " rank ", other, ", which is the caller itself"));
}

absl::Status CheckGroups(int rank, int size, const std::vector<std::vector<int>>& groups) {
  RETURN_IF_ERROR(CheckRank(rank, size, "connect"));
  for (const std::vector<int>& members : groups) {
    std::vector<bool> seen(static_cast<size_t>(size), false);
    for (const int member : members) {
      RETURN_IF_ERROR(CheckRank(member, size, "a group with"));
      if (seen[static_cast<size_t>(member)]) {
        return absl::InvalidArgumentError(absl::StrCat("a group lists rank ", member, " twice"));
      }
      seen[static_cast<size_t>(member)] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
