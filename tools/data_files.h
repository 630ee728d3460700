#pragma once
// Token files for commands: where they lie, and a word when one has to be read as a whole.

#include <memory>
#include <string>

#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/places/places.h"

namespace CLI {
class App;
}

namespace holdfast {

/// Of a run's data. Nothing can be created in S3.
PlaceSettings DataPlaces(const DataConfig& config);

/// --endpoint and --region of a command that takes places.
void AddPlaceOptions(CLI::App& command, PlaceSettings& settings);
/// What they said, for a command that creates files too: objects are made in the directory for temporary files.
absl::StatusOr<std::unique_ptr<Places>> OpenPlaces(PlaceSettings settings);

/// Tells on stderr, once and at every tenth, that a large file without index is being read. Thread-safe.
ReadProgress ScanNotice();

}  // namespace holdfast
