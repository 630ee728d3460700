#include "framework/parallel/reduction_memory.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <vector>

#include "framework/parallel/part_gradients.h"
#include "framework/parallel/reducer.h"

namespace holdfast {
namespace {

/// GradientBuffers, which keeps what is given back for the next vector of the same size.
class Buffers {
 public:
  void Take(int64_t n, int64_t count = 1) {
    Count& of = counts_[n];
    of.most = std::max(of.most, of.now += count);
  }
  void GiveBack(int64_t n, int64_t count = 1) { counts_[n].now -= count; }
  int64_t elements() const {
    int64_t sum = 0;
    for (const auto& [n, count] : counts_) sum += n * count.most;
    return sum;
  }

 private:
  struct Count {
    int64_t now = 0, most = 0;
  };
  std::map<int64_t, Count> counts_;
};

class Planner {
 public:
  Planner(const ShardMap& map, int rank, const SumOrder& order, const ReductionPlan& plan, const UnitSchedule& schedule,
          bool in_parts, bool two_at_a_time)
      : map_(map),
        rank_(rank),
        order_(order),
        plan_(plan),
        schedule_(schedule),
        in_parts_(in_parts),
        two_at_a_time_(two_at_a_time) {
    const Placement& placement = map.placement();
    group_ = placement.Group(placement.GroupOf(rank));
    moves_ = in_parts && placement.num_groups() > 1;
    for (const Unit& unit : map.layout().units()) units_.push_back(Measure(unit));
  }

  ReductionMemory Plan() const {
    ReductionMemory memory{.computed = Computed()};
    if (plan_.size() == 1) return memory;
    memory.sums = Sums();
    memory.received = Received();
    memory.packed = Packed();
    for (const Size& size : units_) memory.mirrored += size.mirrored;
    return memory;
  }

 private:
  struct Size {
    int64_t all = 0, summed = 0, served = 0, mirrored = 0;
    int64_t forwarded = 0;  // what is put in order before it goes to other holders
    bool scattered = false, in_parts = false;
  };

  Size Measure(const Unit& unit) const {
    const auto index = static_cast<int>(&unit - map_.layout().units().data());
    Size size{.all = unit.elements, .in_parts = in_parts_ && PartGradients::Covers(unit)};
    size.summed = map_.CountElements(index, map_.Summed(index, rank_));
    size.served = map_.CountElements(index, map_.Served(index, rank_));
    for (int r = 0; r < map_.placement().size(); ++r) {
      size.scattered = size.scattered || map_.Summed(index, r).size() > 1;
    }
    std::map<int, int64_t> to;  // elements, by the holder that they go to
    for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
      const int64_t elements = map_.layout().chunks()[static_cast<size_t>(chunk)].elements;
      const int primary = map_.PrimaryOf(chunk);
      for (const int holder : map_.Holders(chunk)) {
        if (holder == primary) continue;
        if (holder == rank_) size.mirrored += elements;
        if (primary == rank_) to[holder] += elements;
      }
    }
    bool as_it_is = true;
    for (const auto& [holder, elements] : to) {
      size.forwarded += elements;
      as_it_is = as_it_is && elements == size.summed;
    }
    if (as_it_is) size.forwarded = 0;
    return size;
  }

  const Size& Of(int unit) const { return units_[static_cast<size_t>(unit)]; }

  // Homes of a wave: of the rank's group, those that have a microbatch.
  int64_t Homes(int wave) const {
    return std::count_if(group_.begin(), group_.end(), [&](int r) { return plan_.RangeOf(wave, r).count > 0; });
  }

  /// Given to the reducer.
  struct Contribution {
    int unit;
    int64_t elements, count;  // of each vector, and vectors
  };

  // Reducer::WaitForRoom, if the reducer ends its work only when a pass waits for it.
  void WaitForRoom(int unit, std::deque<Contribution>* waiting, Buffers* buffers) const {
    const auto counts = [&](const Contribution& c) {
      return plan_.mode() == ReductionMode::kEveryMicrobatch || c.unit == unit;
    };
    while (std::count_if(waiting->begin(), waiting->end(), counts) >= Reducer::kMaxWaiting) {
      buffers->GiveBack(waiting->front().elements, waiting->front().count);
      waiting->pop_front();
    }
  }

  // ShardedStore's buffers.
  int64_t Computed() const {
    Buffers buffers;
    std::deque<Contribution> waiting;
    for (int wave = 0, together = 0; wave < plan_.num_waves(); wave += together) {
      together = two_at_a_time_ && wave + 1 < plan_.num_waves() ? kMaxLanes : 1;
      const bool two = together > 1;
      std::array<std::vector<std::vector<MicrobatchRange>>, kMaxLanes> sums;
      sums.fill(std::vector<std::vector<MicrobatchRange>>(units_.size()));
      std::array<int64_t, kMaxLanes> homes_of{};
      for (int lane = 0; lane < together; ++lane) homes_of[static_cast<size_t>(lane)] = Homes(wave + lane);
      const int64_t passes = two ? together : std::max<int64_t>(plan_.RangeOf(wave, rank_).count, 1);
      for (const auto& [pass, call] : CallsOf(schedule_, passes, two)) {
        const int lane = LaneOf(pass, two);
        const MicrobatchRange own = plan_.RangeOf(wave + lane, rank_);
        const int64_t homes = homes_of[static_cast<size_t>(lane)], i = two ? 0 : pass;
        const Size& size = Of(call.unit);
        const int64_t elements = size.in_parts ? size.served : size.all, begun = size.in_parts ? homes : 1;
        if ((size.in_parts ? homes : own.count) == 0) continue;
        if (call.kind == StoreCall::Kind::kBeginGradients) {
          WaitForRoom(call.unit, &waiting, &buffers);
          buffers.Take(elements, begun);
        }
        if (call.kind != StoreCall::Kind::kEndGradients) continue;
        if (size.in_parts) {
          waiting.push_back({call.unit, elements, homes});
          continue;
        }
        std::vector<MicrobatchRange>& closed = sums[static_cast<size_t>(lane)][static_cast<size_t>(call.unit)];
        buffers.GiveBack(elements, Append({own.first + i, 1}, &closed));
        if (i + 1 < own.count || plan_.size() == 1) continue;
        waiting.push_back({call.unit, elements, std::ssize(closed)});
      }
    }
    return buffers.elements();
  }

  /// As GradientSum adds it; how many sums were joined to others.
  int64_t Append(MicrobatchRange sum, std::vector<MicrobatchRange>* sums) const {
    int64_t joined = 0;
    for (; !sums->empty() && order_.Joins(sums->back(), sum); ++joined) {
      sum = {sums->back().first, sums->back().count + sum.count};
      sums->pop_back();
    }
    sums->push_back(sum);
    return joined;
  }

  // The reducer's: what is pushed takes memory only where it is not added to a sum that is there.
  int64_t Sums() const {
    Buffers buffers;
    std::vector<std::vector<MicrobatchRange>> sums(units_.size());
    for (const auto& [wave, unit] : GradientsOf(schedule_, plan_.num_waves(), two_at_a_time_)) {
      const Size& size = Of(unit);
      if (size.summed == 0) continue;
      for (int r = 0; r < plan_.size(); ++r) {
        for (const MicrobatchRange& piece : plan_.Pieces(wave, r)) {
          const int64_t joined = Append(piece, &sums[static_cast<size_t>(unit)]);
          if (joined == 0) buffers.Take(size.summed);
          if (joined > 1) buffers.GiveBack(size.summed, joined - 1);
        }
      }
    }
    return buffers.elements();
  }

  // Reducer::AllocateReceived, and what PartGradients receives.
  int64_t Received() const {
    int64_t elements = 0, of_parts = 0;
    size_t most = 0;
    for (int wave = 0; wave < plan_.num_waves(); ++wave) most = std::max(most, plan_.MaxPieces(wave));
    for (const Size& size : units_) {
      if (!size.in_parts || moves_) elements = std::max(elements, size.summed);
      if (size.in_parts && moves_) of_parts = std::max(of_parts, size.summed * map_.placement().num_groups());
    }
    return map_.placement().size() * elements * static_cast<int64_t>(most) + of_parts;
  }

  int64_t Packed() const {
    int64_t elements = 0, of_parts = 0;
    for (const Size& size : units_) {
      elements = std::max({elements, size.forwarded, size.scattered && !size.in_parts ? size.all : 0});
      if (size.in_parts && moves_) of_parts = std::max(of_parts, size.served);
    }
    return elements + of_parts;
  }

  const ShardMap& map_;
  int rank_;
  const SumOrder& order_;
  const ReductionPlan& plan_;
  const UnitSchedule& schedule_;
  bool in_parts_, two_at_a_time_, moves_;
  std::vector<int> group_;
  std::vector<Size> units_;
};

}  // namespace

ReductionMemory PlanReductionMemory(const ShardMap& map, int rank, const SumOrder& order, const ReductionPlan& plan,
                                    const UnitSchedule& schedule, bool in_parts, bool two_at_a_time) {
  return Planner(map, rank, order, plan, schedule, in_parts, two_at_a_time).Plan();
}

}  // namespace holdfast
