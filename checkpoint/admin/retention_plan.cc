#include "checkpoint/admin/retention_plan.h"

#include <set>

#include "framework/config/load.h"
#include "models/families/families.h"

namespace holdfast {

Retention ConfiguredRetention(const CheckpointPlace& place, const Catalog& catalog) {
  CheckpointConfig config;
  if (place.run_config.has_value()) {
    config = place.run_config->checkpoint;
  } else if (!catalog.valid.empty()) {
    const auto stored = ParseStoredConfig(catalog.valid.front().manifest.config, "config", FamilyPresets());
    if (stored.ok()) config = stored->checkpoint;
  }
  return {.keep_last = config.keep_last, .keep_every_steps = config.keep_every_steps, .keep_best = config.keep_best};
}

std::vector<Deletion> PlanDeletions(const Catalog& catalog, const Retention& retention, bool damaged) {
  std::vector<Deletion> plan;
  const std::vector<CheckpointName> superfluous = ChooseDeletions(catalog.valid, retention, {});
  const std::set<CheckpointName> chosen(superfluous.begin(), superfluous.end());
  for (const CatalogEntry& entry : catalog.valid) {
    if (chosen.contains(entry.manifest.name)) {
      plan.push_back({entry.manifest.name.ToString(), "not kept", entry.bytes, /*valid=*/true});
    }
  }
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    if (!rejected.unfinished && !rejected.given_up && !damaged) continue;
    plan.push_back({rejected.name, rejected.reason, rejected.bytes, /*valid=*/false});
  }
  return plan;
}

}  // namespace holdfast
