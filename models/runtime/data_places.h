#pragma once
// Where the token files of a run lie, and a word when one has to be read as a whole.

#include <stop_token>

#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/places/places.h"

namespace holdfast {

/// Of a run's data. Nothing can be created in S3. Once `stop` is requested, what waits for a server is Cancelled soon.
PlaceSettings DataPlaces(const DataConfig& config, std::stop_token stop = {});

/// Logs, once and at every tenth, that a large file without index is being read. Thread-safe.
ReadProgress ScanNotice();

}  // namespace holdfast
