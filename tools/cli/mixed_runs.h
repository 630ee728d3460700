#pragma once
// What runs differ in that a scaling law says nothing of.

#include <string>

#include "absl/types/span.h"
#include "framework/config/config.h"

namespace holdfast {

/// Keys that decide bits and of which these configs have more than one value, with the values: "optimizer.name (adamw,
/// lion), data.shuffle (true, false)"; shortened where they are many, empty if there are none. Left out are keys that a
/// law knows, or takes for noise: sizes of the model, lengths of run and schedule, learning rate, batch, seed, and what
/// the run is computed with.
std::string MixedKeys(absl::Span<const Config> configs);

}  // namespace holdfast
