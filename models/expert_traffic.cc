#include "models/expert_traffic.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

class Planner {
 public:
  Planner(PartStore& parts, int unit, int64_t rows, int64_t chosen, ExpertTraffic* traffic)
      : parts_(parts), exchange_(parts.exchange()), rows_(rows), chosen_(chosen), traffic_(*traffic) {
    const absl::Span<const int> servers = parts.ServersOf(unit);
    experts_of_.resize(static_cast<size_t>(exchange_.size()));
    for (size_t e = 0; e < servers.size(); ++e) {
      experts_of_[static_cast<size_t>(servers[e])].push_back(static_cast<int64_t>(e));
    }
    num_experts_ = std::ssize(servers);
    traffic_.routes = ExpertRoutes(parts.nodes(), parts.homes());
  }

  absl::Status Plan(const kernels::ExpertRows* choices) {
    std::vector<int32_t> offsets(static_cast<size_t>(num_experts_) + 1), numbers;
    if (choices != nullptr) {
      ASSIGN_OR_RETURN(offsets, parts_.Fetch(choices->offsets, num_experts_ + 1));
      ASSIGN_OR_RETURN(numbers, parts_.Fetch(choices->choices, choices->slots));
    }
    PlaceChoices(offsets);
    RETURN_IF_ERROR(ExchangeCounts(ChooseRows(offsets, numbers)));
    return PlanRounds();
  }

 private:
  const ExpertRoutes& routes() const { return traffic_.routes; }
  int64_t room() const { return kExpertRoom * rows_ * chosen_; }
  const std::vector<int64_t>& ExpertsOf(int member) const { return experts_of_[static_cast<size_t>(member)]; }

  // Where ranks' experts do not ascend with the ranks, choices are put in the order in which they are sent.
  void PlaceChoices(const std::vector<int32_t>& offsets) {
    int64_t place = 0;
    bool in_order = true;
    for (const std::vector<int64_t>& experts : experts_of_) {
      traffic_.places.push_back(place);
      for (const int64_t e : experts) {
        const int64_t slot = offsets[static_cast<size_t>(e)], count = offsets[static_cast<size_t>(e) + 1] - slot;
        if (count == 0) continue;
        in_order = in_order && slot == place;
        traffic_.order.push_back({slot, place, count});
        place += count;
      }
      traffic_.sent.push_back(place - traffic_.places.back());
    }
    if (in_order) traffic_.order.clear();
  }

  /// Numbers of the rows of a microbatch in a list that has each once, as it comes.
  class Distinct {
   public:
    explicit Distinct(int64_t rows) : number_(static_cast<size_t>(rows), -1) {}
    /// Of `row`; and whether it is new.
    std::pair<int32_t, bool> Add(int32_t row) {
      int32_t& number = number_[static_cast<size_t>(row)];
      if (number >= 0) return {number, false};
      number = static_cast<int32_t>(rows_.size());
      rows_.push_back(row);
      return {number, true};
    }
    std::vector<int32_t> Take() {
      for (const int32_t row : rows_) number_[static_cast<size_t>(row)] = -1;
      return std::exchange(rows_, {});
    }

   private:
    std::vector<int32_t> number_, rows_;
  };

  // What each member is told: of each member of its node, how many choices go to each of its experts, and how many
  // rows to itself; and how many rows travel to the node.
  std::vector<int64_t> ChooseRows(const std::vector<int32_t>& offsets, const std::vector<int32_t>& choices) {
    const int own_node = routes().NodeOf(exchange_.rank());
    Distinct of_node(rows_), of_member(rows_);
    std::vector<std::vector<int64_t>> told(static_cast<size_t>(routes().num_nodes()));
    std::vector<std::vector<int32_t>> which(experts_of_.size());
    for (int node = 0; node < routes().num_nodes(); ++node) {
      ExpertTraffic::ToNode& to_node = traffic_.to_nodes.emplace_back();
      std::vector<int64_t>& counts = told[static_cast<size_t>(node)];
      for (const int member : routes().Members(node)) {
        for (const int64_t e : ExpertsOf(member)) {
          const int32_t first = offsets[static_cast<size_t>(e)], end = offsets[static_cast<size_t>(e) + 1];
          counts.push_back(end - first);
          for (int32_t slot = first; slot < end; ++slot) {
            const auto row = static_cast<int32_t>(choices[static_cast<size_t>(slot)] / chosen_);
            const auto [number, added] = of_member.Add(row);
            which[static_cast<size_t>(member)].push_back(number);
            if (added) to_node.handed_on.push_back(node == own_node ? row : of_node.Add(row).first);
          }
        }
        counts.push_back(std::ssize(of_member.Take()));
      }
      to_node.rows = of_node.Take();
      counts.push_back(std::ssize(to_node.rows));
    }
    std::vector<int64_t> counts;
    for (int member = 0; member < exchange_.size(); ++member) {
      const std::vector<int64_t>& to_tell = told[static_cast<size_t>(routes().NodeOf(member))];
      counts.insert(counts.end(), to_tell.begin(), to_tell.end());
      const std::vector<int32_t>& numbers = which[static_cast<size_t>(member)];
      traffic_.which.insert(traffic_.which.end(), numbers.begin(), numbers.end());
    }
    return counts;
  }

  absl::Status ExchangeCounts(const std::vector<int64_t>& counts) {
    std::vector<int64_t> per_rank;
    for (int member = 0; member < exchange_.size(); ++member) {
      int64_t& numbers = per_rank.emplace_back(1);
      for (const int other : Node(member)) numbers += std::ssize(ExpertsOf(other)) + 1;
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> all, exchange_.AllToAllCounts(counts, per_rank));
    auto number = all.begin();
    for (int home = 0; home < exchange_.size(); ++home) {
      ExpertTraffic::Home& from = traffic_.received.emplace_back();
      std::vector<int64_t>& of_home = choices_.emplace_back();
      bool valid = true;
      for (const int member : Node(exchange_.rank())) {
        int64_t sum = 0;
        for (size_t e = 0; e < ExpertsOf(member).size(); ++e) {
          valid = valid && *number >= 0 && *number <= rows_;
          sum += *number;
          if (member == exchange_.rank()) from.choices.push_back(*number);
          ++number;
        }
        const int64_t rows = *number++;
        valid = valid && sum <= rows_ * chosen_ && rows >= 0 && rows <= std::min(sum, rows_);
        of_home.push_back(sum);
        from.rows_of.push_back(rows);
        if (member != exchange_.rank()) continue;
        from.num_choices = sum;
        from.rows = rows;
      }
      from.rows_to_node = *number++;
      if (!valid || from.rows_to_node < 0 || from.rows_to_node > rows_) {
        return absl::InternalError(absl::StrCat("rank ", home, " of the group announces more rows than it can have"));
      }
    }
    return absl::OkStatus();
  }

  // The members of a node fill their rooms with one home after another, until there is one for which one of them has
  // none left, and tell each home in which round it is. All see the same numbers.
  absl::Status PlanRounds() {
    traffic_.sent_round.assign(experts_of_.size(), 0);
    int64_t most = 0;
    for (const std::vector<int64_t>& experts : experts_of_) most = std::max(most, std::ssize(experts));
    // What always fits needs no telling; all members see the same.
    const absl::Span<const int> homes = parts_.homes();
    if (std::ssize(homes) <= kMaxHomesOfRound && std::ssize(homes) * rows_ * std::min(chosen_, most) <= room()) {
      return absl::OkStatus();
    }
    int64_t round = 0, homes_of_round = 0;
    std::vector<int64_t> filled(Node(exchange_.rank()).size());
    for (const int home : homes) {
      const std::vector<int64_t>& of_home = choices_[static_cast<size_t>(home)];
      bool fits = homes_of_round < kMaxHomesOfRound;
      for (size_t i = 0; i < filled.size(); ++i) fits = fits && filled[i] + of_home[i] <= room();
      if (!fits) {
        ++round;
        homes_of_round = 0;
        std::fill(filled.begin(), filled.end(), 0);
      }
      for (size_t i = 0; i < filled.size(); ++i) filled[i] += of_home[i];
      ++homes_of_round;
      traffic_.received[static_cast<size_t>(home)].round = round;
    }
    std::vector<int64_t> told;
    for (const ExpertTraffic::Home& home : traffic_.received) told.insert(told.end(), {home.round, round + 1});
    ASSIGN_OR_RETURN(const std::vector<int64_t> received,
                     exchange_.AllToAllCounts(told, std::vector<int64_t>(experts_of_.size(), 2)));
    for (size_t member = 0; member < experts_of_.size(); ++member) {
      traffic_.sent_round[member] = received[2 * member];
      traffic_.rounds = std::max(traffic_.rounds, received[2 * member + 1]);
    }
    return absl::OkStatus();
  }

  absl::Span<const int> Node(int member) const { return routes().Members(routes().NodeOf(member)); }

  PartStore& parts_;
  Exchange& exchange_;
  int64_t rows_, chosen_, num_experts_ = 0;
  ExpertTraffic& traffic_;
  std::vector<std::vector<int64_t>> experts_of_;  // by member
  std::vector<std::vector<int64_t>> choices_;     // by home, by member of this rank's node: how many come
};

}  // namespace

absl::StatusOr<ExpertTraffic> PlanExpertTraffic(PartStore& parts, int unit, const kernels::ExpertRows* choices,
                                                int64_t rows, int64_t chosen) {
  ExpertTraffic traffic;
  RETURN_IF_ERROR(Planner(parts, unit, rows, chosen, &traffic).Plan(choices));
  return traffic;
}

}  // namespace holdfast
