#pragma once
// What makes a process one of a run: digests and names that workers say when they join, that the coordinator compares,
// and that checkpoints keep.

#include <cstdint>
#include <string>

#include "elastic/control/messages.h"
#include "framework/config/config.h"

namespace holdfast {

/// Of the resolved config, but for what may differ from machine to machine or is compared by itself.
uint64_t ConfigDigest(const Config& config);

/// What every worker of a run with this resolved config must agree on, as far as this process can tell: all but the
/// data, and the kernels only where this processor has their arithmetic, or `gpu` says what a GPU computes
/// (Device::arithmetic). Takes some milliseconds.
RunDigests DigestsOf(const Config& config, const std::string& gpu = "");

}  // namespace holdfast
