#include "framework/parallel/part_gradients.h"

#include <algorithm>
#include <numeric>

#include "framework/base/status.h"
#include "framework/parallel/float_bytes.h"

namespace holdfast {
namespace {

void Append(int64_t first, int64_t elements, Ranges* ranges) {
  if (ranges->empty() || ranges->back().end != first) ranges->push_back({first, first});
  ranges->back().end += elements;
}

int64_t Count(const Ranges& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                         [](int64_t sum, const Range& range) { return sum + range.size(); });
}

/// All of `ranges`, one after the other.
Ranges Packed(int64_t first, const Ranges& ranges) { return {{first, first + Count(ranges)}}; }

}  // namespace

absl::StatusOr<PartGradients> PartGradients::Create(const ShardMap& map, Communicator& world, Device& device,
                                                    Stream& stream) {
  PartGradients gradients(map, world, stream);
  int64_t served = 0, arriving = 0;
  for (int u = 0; u < map.layout().num_units(); ++u) {
    const bool covered = gradients.moves() && Covers(map.layout().units()[static_cast<size_t>(u)]);
    gradients.routes_.push_back(covered ? gradients.RoutesOf(u) : Routes());
    served = std::max(served, gradients.routes_.back().served);
    arriving = std::max(arriving, gradients.routes_.back().summed * map.placement().num_groups());
  }
  ASSIGN_OR_RETURN(gradients.sent_, Buffer::Allocate(device, static_cast<size_t>(served * kFloatBytes), "gradients"));
  ASSIGN_OR_RETURN(gradients.arrived_,
                   Buffer::Allocate(device, static_cast<size_t>(arriving * kFloatBytes), "gradients of other ranks"));
  return gradients;
}

PartGradients::Routes PartGradients::RoutesOf(int unit) const {
  const Placement& placement = map_->placement();
  const int me = world_->rank();
  const auto size = static_cast<size_t>(placement.size());
  Routes routes{.to = std::vector<Ranges>(size), .from = std::vector<Ranges>(size)};
  const Unit& u = map_->layout().units()[static_cast<size_t>(unit)];
  for (int chunk = u.first_chunk; chunk < u.first_chunk + u.num_chunks; ++chunk) {
    const int64_t elements = map_->layout().chunks()[static_cast<size_t>(chunk)].elements;
    const int summing = map_->PrimaryOf(chunk);
    if (map_->Serves(me, chunk)) {
      Append(routes.served, elements, &routes.to[static_cast<size_t>(summing)]);
      routes.served += elements;
    }
    if (summing != me) continue;
    for (int group = 0; group < placement.num_groups(); ++group) {
      const int server = placement.ServerOf(group, map_->CellOfChunk(chunk));
      Append(routes.summed, elements, &routes.from[static_cast<size_t>(server)]);
    }
    routes.summed += elements;
  }
  return routes;
}

std::vector<int> PartGradients::HomesOf(const ReductionPlan& plan, int wave, int group) const {
  std::vector<int> homes = map_->placement().Group(group);
  homes.erase(std::remove_if(homes.begin(), homes.end(), [&](int r) { return plan.RangeOf(wave, r).count == 0; }),
              homes.end());
  return homes;
}

// Of two lists of ranges with as many elements.
void PartGradients::Copy(float* out, const Ranges& out_ranges, const float* in, const Ranges& in_ranges) const {
  auto to = out_ranges.begin();
  int64_t done = 0;  // of *to
  for (Range from : in_ranges) {
    while (!from.empty()) {
      const int64_t n = std::min(from.size(), to->size() - done);
      stream_->ops().Copy(out + to->begin + done, in + from.begin, static_cast<size_t>(n * kFloatBytes));
      from.begin += n;
      done += n;
      if (done < to->size()) continue;
      ++to;
      done = 0;
    }
  }
}

// One all-to-all for each microbatch that a group may have.
absl::Status PartGradients::Exchange(const ReductionPlan& plan, int wave, int unit,
                                     absl::Span<const GradientSum::Piece> pieces, float* received, Deadline deadline) {
  const Routes& routes = routes_[static_cast<size_t>(unit)];
  const Placement& placement = map_->placement();
  const auto me = static_cast<size_t>(world_->rank()), size = static_cast<size_t>(world_->size());
  std::vector<std::vector<int>> homes;  // by group
  size_t most = 0;
  for (int group = 0; group < placement.num_groups(); ++group) {
    homes.push_back(HomesOf(plan, wave, group));
    most = std::max(most, homes.back().size());
  }
  for (size_t k = 0; k < most; ++k) {
    std::vector<int64_t> out(size), out_starts(size), in(size), in_starts(size);
    int64_t sent = 0, arriving = 0;
    for (size_t r = 0; r < size; ++r) {
      out_starts[r] = sent * kFloatBytes;
      in_starts[r] = arriving * kFloatBytes;
      if (r == me) continue;
      if (k < pieces.size() && !routes.to[r].empty()) {
        Copy(sent_.as<float>(), Packed(sent, routes.to[r]), pieces[k].sum.data(), routes.to[r]);
        out[r] = Count(routes.to[r]) * kFloatBytes;
        sent += Count(routes.to[r]);
      }
      if (k >= homes[static_cast<size_t>(placement.GroupOf(static_cast<int>(r)))].size()) continue;
      in[r] = Count(routes.from[r]) * kFloatBytes;
      arriving += Count(routes.from[r]);
    }
    RETURN_IF_ERROR(stream_->Synchronize());
    RETURN_IF_ERROR(world_->AllToAllV({AsBytes(static_cast<const float*>(sent_.as<float>()), sent), out, out_starts},
                                      {AsBytes(arrived_.as<float>(), arriving), in, in_starts}, deadline));
    for (size_t r = 0; r < size; ++r) {
      const std::vector<int>& of_group = homes[static_cast<size_t>(placement.GroupOf(static_cast<int>(r)))];
      if (k >= of_group.size() || routes.from[r].empty()) continue;
      float* const sum = received + of_group[k] * routes.summed;
      if (r == me) {
        Copy(sum, routes.from[r], pieces[k].sum.data(), routes.to[r]);
      } else {
        Copy(sum, routes.from[r], arrived_.as<float>(), Packed(in_starts[r] / kFloatBytes, routes.from[r]));
      }
    }
    RETURN_IF_ERROR(stream_->Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace holdfast
