#include "checkpoint/admin/retention_plan.h"

#include <set>

#include "framework/base/status.h"
#include "framework/config/load.h"
#include "models/families/families.h"

namespace holdfast {

absl::StatusOr<Retention> ConfiguredRetention(const CheckpointPlace& place, const Catalog& catalog) {
  CheckpointConfig config;
  if (place.run_config.has_value()) {
    config = place.run_config->checkpoint;
  } else if (!catalog.valid.empty()) {
    const Manifest& newest = catalog.valid.front().manifest;
    const auto stored = ParseStoredConfig(newest.config, newest.name.ToString() + "/config", FamilyPresets());
    if (!stored.ok()) {
      return Annotate(stored.status(),
                      "what the run keeps cannot be read; give --keep-last, --keep-every and --keep-best");
    }
    config = stored->checkpoint;
  }
  return Retention{
      .keep_last = config.keep_last, .keep_every_steps = config.keep_every_steps, .keep_best = config.keep_best};
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
