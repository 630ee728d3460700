#pragma once
#include <cstdint>

namespace holdfast {

/// From the system's random numbers, so that no two processes, of whichever hosts, have the same. Not 0, and with room
/// to count up from.
uint64_t RandomId();

}  // namespace holdfast
