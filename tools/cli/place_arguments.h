#pragma once
// --endpoint and --region of a command that takes places.

#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "framework/places/places.h"

namespace holdfast {

void AddPlaceOptions(CLI::App& command, PlaceSettings& settings);

/// What they said, for a command that creates files too: objects are made in the directory for temporary files.
absl::StatusOr<std::unique_ptr<Places>> OpenPlaces(PlaceSettings settings, std::stop_token stop = {});

}  // namespace holdfast
