#pragma once
// The normal distribution with equal bits on every processor.

#include <cstdint>

#include "framework/search/low_discrepancy.h"

namespace holdfast::search {

/// log of P(X <= z), also where that is too small for a double.
double LogNormalCdf(double z);

/// log of E max(0, z + X): how much a value is expected to improve whose mean is z standard deviations better than the
/// reference, in standard deviations. Computed so that it does not become log 0 (arXiv 2310.20708).
double LogExpectedImprovement(double z);

/// A standard normal number: a function of its arguments.
double Normal(uint64_t seed, Draw draw, uint32_t a, uint32_t b, uint64_t element);

}  // namespace holdfast::search
