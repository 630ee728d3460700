#pragma once
// Points that fill a cube more evenly than random ones, by number.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace holdfast::search {

/// What random numbers are for: those of one use say nothing of those of another.
enum class Draw : uint32_t { kDigits, kStart, kCandidates, kNeighbours };

/// In (0, 1): a function of its arguments.
double Uniform(uint64_t seed, Draw draw, uint32_t a, uint32_t b, uint64_t element);

/// Point `index` of Halton's sequence in `dimensions` <= 64, a prime base each, with each digit of each base permuted
/// at random (Owen 2017, arXiv 1706.02808): for every seed evenly spread, and every point uniform over seeds.
std::vector<double> HaltonPoint(uint64_t seed, uint64_t index, size_t dimensions);

}  // namespace holdfast::search
