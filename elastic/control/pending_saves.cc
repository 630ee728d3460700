#include "elastic/control/pending_saves.h"

#include <algorithm>

namespace holdfast {

void PendingSaves::Begin(int64_t step, const World& world, bool at_end) {
  saves_.push_back({.step = step, .world = world, .shards = {}, .missing = world.size(), .at_end = at_end});
  saves_.back().shards.resize(world.members.size());
}

PendingSaves::Save* PendingSaves::OnSaved(const WorkerId& id, const SavedMessage& message) {
  for (Save& save : saves_) {
    if (save.step != message.step || save.world.generation != message.generation) continue;
    const int rank = save.world.RankOf(id);
    if (rank < 0 || save.shards[static_cast<size_t>(rank)].has_value()) return nullptr;
    save.shards[static_cast<size_t>(rank)] = message;
    --save.missing;
    return &save;
  }
  return nullptr;
}

bool PendingSaves::Has(int64_t step) const {
  return std::any_of(saves_.begin(), saves_.end(), [&](const Save& s) { return s.step == step; });
}

int64_t PendingSaves::being_written() const {
  return std::count_if(saves_.begin(), saves_.end(), [](const Save& s) { return s.missing > 0; });
}

std::optional<PendingSaves::Save> PendingSaves::Remove(int64_t step, uint64_t generation) {
  const auto it = std::find_if(saves_.begin(), saves_.end(),
                               [&](const Save& s) { return s.step == step && s.world.generation == generation; });
  if (it == saves_.end()) return std::nullopt;
  std::optional<Save> removed = std::move(*it);
  saves_.erase(it);
  return removed;
}

void PendingSaves::RemoveEndOf(uint64_t generation) {
  std::erase_if(saves_, [&](const Save& s) { return s.at_end && !s.committing && s.world.generation == generation; });
}

std::vector<PendingSaves::Save> PendingSaves::TakeThoseOf(const WorkerId& id) {
  const auto waits = [&](const Save& s) {
    const int rank = s.world.RankOf(id);
    return rank >= 0 && !s.shards[static_cast<size_t>(rank)].has_value();
  };
  std::vector<Save> taken;
  std::copy_if(saves_.begin(), saves_.end(), std::back_inserter(taken), waits);
  std::erase_if(saves_, waits);
  return taken;
}

}  // namespace holdfast
