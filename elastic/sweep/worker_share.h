#pragma once
// How the workers of a sweep are shared by the trials that can run. Pure.

#include <cstdint>
#include <vector>

namespace holdfast {

/// `most`: of each trial, in order of precedence, how many workers it can use. Each gets one while there are any, the
/// rest goes round, so that nobody has two more than another who could use them. As long as `most`.
std::vector<int64_t> ShareWorkers(const std::vector<int64_t>& most, int64_t workers);

}  // namespace holdfast
