#pragma once
// Where the token files of a run lie, and a word when one has to be read as a whole.

#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/places/places.h"

namespace holdfast {

/// Of a run's data. Nothing can be created in S3.
PlaceSettings DataPlaces(const DataConfig& config);

/// Logs, once and at every tenth, that a large file without index is being read. Thread-safe.
ReadProgress ScanNotice();

}  // namespace holdfast
