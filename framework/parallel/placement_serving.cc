// Who serves and who sums each cell.

#include <algorithm>

#include "framework/parallel/placement.h"
#include "framework/parallel/placement_source.h"

namespace holdfast {

// Whoever served a cell keeps it; else another holder takes it, for which nothing has to move. Whoever serves too much
// then gives some to their mirrors (BalanceServing), and what is still too much goes to whoever has least.
void Placement::Serve(int group, const Source* source) {
  if (everybody_serves_all()) return;
  std::vector<int> ranks;
  for (int rank = 0; rank < num_staying(); ++rank) {
    if (GroupOf(rank) == group) ranks.push_back(rank);
  }
  const int most = Most(num_cells_, static_cast<int>(ranks.size()));
  const size_t base = servers_.size();
  servers_.resize(base + static_cast<size_t>(num_cells_), kNobody);
  std::vector<std::vector<int>> served(static_cast<size_t>(num_staying()));  // cells, by rank
  if (source != nullptr) {
    KeepServing(group, *source, &served);
    BalanceServing(group, most, *source, &served);
    GiveUpServing(ranks, most, &served);
  }
  for (const int rank : ranks) {
    for (const int cell : served[static_cast<size_t>(rank)]) servers_[base + static_cast<size_t>(cell)] = rank;
  }
  // What is left goes in runs: to each rank, in turn, as much as it lacks of its part. The rest is less than a cell
  // each.
  std::vector<int> lacks, load(static_cast<size_t>(num_staying()));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t n = static_cast<int64_t>(ranks.size()), at = static_cast<int64_t>(i);
    const auto part = static_cast<int>((at + 1) * num_cells_ / n - at * num_cells_ / n);
    int& serves = load[static_cast<size_t>(ranks[i])];
    serves = static_cast<int>(served[static_cast<size_t>(ranks[i])].size());
    lacks.push_back(std::max(0, part - serves));
  }
  size_t next = 0;
  for (int cell = 0; cell < num_cells_; ++cell) {
    int& server = servers_[base + static_cast<size_t>(cell)];
    if (server >= 0) continue;
    while (next < ranks.size() && lacks[next] == 0) ++next;
    if (next < ranks.size()) --lacks[next];
    const auto has_less = [&](int a, int b) { return load[static_cast<size_t>(a)] < load[static_cast<size_t>(b)]; };
    server = next < ranks.size() ? ranks[next] : *std::min_element(ranks.begin(), ranks.end(), has_less);
    ++load[static_cast<size_t>(server)];
  }
}

void Placement::KeepServing(int group, const Source& source, std::vector<std::vector<int>>* served) const {
  std::vector<int> open;
  for (int cell = 0; cell < num_cells_; ++cell) {
    const int rank = source.Server(group, cell);
    if (rank >= 0 && GroupOf(rank) == group) {
      (*served)[static_cast<size_t>(rank)].push_back(cell);
    } else {
      open.push_back(cell);
    }
  }
  for (const int cell : open) {
    std::vector<int> holders = source.Holders(cell);
    std::erase_if(holders, [&](int rank) { return GroupOf(rank) != group; });
    const auto best = std::min_element(holders.begin(), holders.end(), [&](int a, int b) {
      return (*served)[static_cast<size_t>(a)].size() < (*served)[static_cast<size_t>(b)].size();
    });
    if (best != holders.end()) (*served)[static_cast<size_t>(*best)].push_back(cell);
  }
}

// Who serves too much gives a cell to one that mirrors it, that one gives one of its own on, and so round the ring
// until somebody has room (chained declustering, Hsiao and DeWitt 1990): after a loss all serve alike, and nothing has
// moved.
void Placement::BalanceServing(int group, int most, const Source& source, std::vector<std::vector<int>>* served) const {
  struct Step {
    int from = kNobody, cell = 0;  // whose cell is to be taken
  };
  std::vector<Step> steps(served->size());     // of one search; empty but for who was reached in it
  std::vector<bool> hopeless(served->size());  // nobody with room can be reached: searches pass it by
  for (int first = 0; first < num_staying(); ++first) {
    while (static_cast<int>((*served)[static_cast<size_t>(first)].size()) > most &&
           !hopeless[static_cast<size_t>(first)]) {
      std::vector<int> reached{first};
      int last = kNobody;
      for (size_t i = 0; i < reached.size() && last < 0; ++i) {
        for (const int cell : (*served)[static_cast<size_t>(reached[i])]) {
          for (const int rank : source.Holders(cell)) {
            Step& step = steps[static_cast<size_t>(rank)];
            const bool is_new = rank != first && step.from < 0 && GroupOf(rank) == group;
            if (!is_new || hopeless[static_cast<size_t>(rank)]) continue;
            step = {reached[i], cell};
            reached.push_back(rank);
            if (static_cast<int>((*served)[static_cast<size_t>(rank)].size()) < most) last = rank;
            if (last >= 0) break;
          }
          if (last >= 0) break;
        }
      }
      if (last < 0) {
        for (const int rank : reached) hopeless[static_cast<size_t>(rank)] = true;
        break;
      }
      for (int to = last; to != first; to = steps[static_cast<size_t>(to)].from) {
        const Step& step = steps[static_cast<size_t>(to)];
        std::erase((*served)[static_cast<size_t>(step.from)], step.cell);
        (*served)[static_cast<size_t>(to)].push_back(step.cell);
      }
      for (const int rank : reached) steps[static_cast<size_t>(rank)] = {};
    }
  }
}

// Its last cells, to those who have less than their part; an eighth too much is better than a step that has to wait.
void Placement::GiveUpServing(const std::vector<int>& ranks, int most, std::vector<std::vector<int>>* served) const {
  const int least = num_cells_ / static_cast<int>(ranks.size());
  const bool some_lack = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return static_cast<int>((*served)[static_cast<size_t>(rank)].size()) < least - least / 8;
  });
  for (const int rank : ranks) {
    std::vector<int>& cells = (*served)[static_cast<size_t>(rank)];
    std::sort(cells.begin(), cells.end());
    const int keeps = some_lack ? most : most + most / 8;
    if (static_cast<int>(cells.size()) > keeps) cells.resize(static_cast<size_t>(keeps));
  }
}

// Of several serving ranks: the one before, or the one that has least to sum.
void Placement::ChoosePrimaries(const Source* source) {
  primary_group_.assign(static_cast<size_t>(num_cells_), 0);
  if (num_groups_ == 1) return;
  const int most = Most(num_cells_, num_staying());
  std::vector<int> summed(static_cast<size_t>(num_staying()));
  const auto choose = [&](int cell, int group) {
    primary_group_[static_cast<size_t>(cell)] = group;
    ++summed[static_cast<size_t>(ServerOf(group, cell))];
  };
  std::vector<int> open;
  for (int64_t cell = 0; cell < num_cells_; ++cell) {
    const auto slice = static_cast<int>(cell * num_staying() / num_cells_);
    int group = slice % num_groups_;
    if (source != nullptr) {
      const int rank = source->Primary(static_cast<int>(cell));
      group = rank < 0 ? kNobody : GroupOf(rank);
      if (group >= 0 && ServerOf(group, static_cast<int>(cell)) != rank) group = kNobody;
      if (group >= 0 && summed[static_cast<size_t>(rank)] >= most) group = kNobody;
    }
    if (group >= 0) {
      choose(static_cast<int>(cell), group);
    } else {
      open.push_back(static_cast<int>(cell));
    }
  }
  for (const int cell : open) {
    int best = 0;
    for (int group = 1; group < num_groups_; ++group) {
      if (summed[static_cast<size_t>(ServerOf(group, cell))] < summed[static_cast<size_t>(ServerOf(best, cell))]) {
        best = group;
      }
    }
    choose(cell, best);
  }
}

}  // namespace holdfast
