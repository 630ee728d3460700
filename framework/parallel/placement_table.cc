// A placement as numbers, and back.

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/parallel/placement.h"

namespace holdfast {
namespace {

constexpr int kMaxCells = UsedCells::kFinest;
constexpr int64_t kMaxServers = int64_t{1} << 26;  // of all groups together

/// Each run is its first value and 2 * its length, or that and 1 if its values ascend by 1, as the mirrors of a rank's
/// cells do.
void AppendRunLengths(absl::Span<const int> values, std::vector<uint32_t>* table) {
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    const int step = end < values.size() && values[end] == values[i] + 1 ? 1 : 0;
    while (end < values.size() && values[end] == values[end - 1] + step) ++end;
    table->push_back(static_cast<uint32_t>(values[i]));
    table->push_back(static_cast<uint32_t>(2 * (end - i)) + static_cast<uint32_t>(step));
    i = end;
  }
}

/// Takes the ranges of `count` values below `limit` off the front of `table`.
absl::Status TakeRunLengths(size_t count, int limit, absl::Span<const uint32_t>* table, std::vector<int>* values) {
  const size_t first = values->size();
  while (values->size() - first < count) {
    if (table->size() < 2) return absl::InvalidArgumentError("a placement that is cut off");
    const uint32_t value = (*table)[0], length = (*table)[1] / 2, step = (*table)[1] % 2;
    if (length == 0 || length > count - (values->size() - first) ||
        uint64_t{value} + uint64_t{step} * (length - 1) >= static_cast<uint64_t>(limit)) {
      return absl::InvalidArgumentError(absl::StrCat("a placement with ", length, " values from ", value, " on"));
    }
    for (uint32_t i = 0; i < length; ++i) values->push_back(static_cast<int>(value + step * i));
    table->remove_prefix(2);
  }
  return absl::OkStatus();
}

}  // namespace

// Cells, then ranges of: groups of ranks, serving ranks by group, groups of primaries, mirrors. What follows from the
// config and the number of ranks is left out.
std::vector<uint32_t> Placement::Table() const {
  std::vector<uint32_t> table{static_cast<uint32_t>(num_cells_)};
  AppendRunLengths(group_of_, &table);
  AppendRunLengths(servers_, &table);
  AppendRunLengths(primary_group_, &table);
  AppendRunLengths(mirrors_, &table);
  return table;
}

absl::StatusOr<Placement> Placement::FromTable(std::vector<std::string> nodes, const ParallelConfig& options,
                                               int leaving, absl::Span<const uint32_t> table) {
  if (table.empty()) return Placement(std::move(nodes), options, leaving);
  if (!std::has_single_bit(table[0]) || table[0] > kMaxCells) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", table[0], " cells"));
  }
  Placement placement(std::move(nodes), options, leaving, static_cast<int>(table[0]));
  if (placement.num_cells_ != static_cast<int>(table[0])) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", table[0], " cells for ", placement.size()));
  }
  table.remove_prefix(1);
  const auto cells = static_cast<size_t>(placement.num_cells_), groups = static_cast<size_t>(placement.num_groups_);
  const int staying = placement.num_staying();
  if (!placement.everybody_serves_all() && int64_t{placement.num_cells_} * placement.num_groups_ > kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", cells, " cells in ", groups, " groups"));
  }
  RETURN_IF_ERROR(TakeRunLengths(static_cast<size_t>(staying), placement.num_groups_, &table, &placement.group_of_));
  if (!placement.everybody_serves_all()) {
    RETURN_IF_ERROR(TakeRunLengths(groups * cells, staying, &table, &placement.servers_));
  }
  RETURN_IF_ERROR(TakeRunLengths(cells, placement.num_groups_, &table, &placement.primary_group_));
  RETURN_IF_ERROR(
      TakeRunLengths(static_cast<size_t>(placement.num_mirrors_) * cells, staying, &table, &placement.mirrors_));
  if (!table.empty()) return absl::InvalidArgumentError("a placement with something behind it");
  RETURN_IF_ERROR(placement.Check());
  return placement;
}

absl::Status Placement::Check() const {
  const int cells = everybody_serves_all() ? 1 : num_cells_;  // then what is true of one is true of all
  for (int cell = 0; cell < cells; ++cell) {
    for (int group = 0; group < num_groups_; ++group) {
      if (GroupOf(ServerOf(group, cell)) != group) {
        return absl::InvalidArgumentError(absl::StrCat("cell ", cell, " is served to group ", group, " by another"));
      }
    }
    std::vector<int> holders = Holders(cell);
    std::sort(holders.begin(), holders.end());
    if (std::adjacent_find(holders.begin(), holders.end()) != holders.end()) {
      return absl::InvalidArgumentError(absl::StrCat("cell ", cell, " is held twice by one rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
