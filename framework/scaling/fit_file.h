#pragma once
// A fit as a JSON file ("holdfast scaling fit", version 1):
//
//   {"format": "holdfast scaling fit", "version": 1, "form": "chinchilla", "formula": "E + A / N^a + B / D^b",
//    "values": {"E": {"value": 1.8, "low": 1.7, "high": 1.9}, ...},      for people: not read back
//    "log_coefficients": [...], "exponents": [...],                       the law itself
//    "huber_delta": 0.001, "seed": 0, "level": 0.9, "runs_digest": "...",
//    "runs": [{"name": "...", "parameters": ..., ...}], "resampled": [[...], ...]}
//
// Rows of `resampled` are log coefficients, then exponents. Downside: with 1000 resamples some 100 KB.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/scaling/fit.h"

namespace holdfast {

std::string ToJson(const Fit& fit);
/// InvalidArgument, with path and key, if it is no such file, or one whose runs are not those of its digest.
absl::StatusOr<Fit> ReadFit(const std::string& path);
/// Of all that is in the file.
uint64_t DigestOf(const Fit& fit);

}  // namespace holdfast
