#pragma once
// How many of a step's microbatches each rank computes. Pure functions; nothing here changes a bit of the result.

#include <cstdint>
#include <vector>

namespace holdfast {

/// One microbatch after the other goes to the rank that would be done with it first, which makes the shortest step
/// there is (shares in proportion to speed, rounded by largest remainder, do not: of 4 microbatches for 3 quick ranks
/// and one that is 3 times slower they give it one, and the step lasts half as long again). `seconds`: per microbatch,
/// by rank; 0 = not known, taken for the median of those that are.
std::vector<int64_t> SplitBySpeed(int64_t microbatches, const std::vector<double>& seconds);

/// `current`, or a split by speed if that promises a step shorter by more than a twentieth: so small a gain that noise
/// alone does not move microbatches to and fro.
std::vector<int64_t> Rebalance(const std::vector<int64_t>& current, const std::vector<double>& seconds);

}  // namespace holdfast
