#pragma once
// What scaling laws are fitted to: finished runs, each with its size, what it was trained on and where it ended.
//
// Parameters are all of a model, tables of embeddings included, as `holdfast validate` prints them and as Hoffmann et
// al. 2022 count; Kaplan et al. 2020 leave tables out. A file may count either way, all of its runs alike.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

/// What the loss of a run is a function of.
struct RunSize {
  double parameters = 0;  // all of them
  double active = 0;      // used for a token; of a dense model all
  double tokens = 0;

  /// 6 N D with the active parameters: forward and backward, attention not counted (Kaplan et al. 2020, section 2.1).
  double Flops() const { return 6 * active * tokens; }
};

struct Observation {
  std::string name;
  RunSize size;
  double flops = 0;
  double loss = 0;                         // nats per token
  std::optional<double> learning_rate;     // the highest of the run
  std::optional<double> batch_tokens;      // of a step
  std::optional<double> data_tokens = {};  // of one pass over the training data
};

inline constexpr size_t kMaxObservationBytes = size_t{16} << 20;  // of a file
inline constexpr size_t kMaxObservations = 20'000;

/// Whether all numbers are finite and positive and the active parameters no more than all; else InvalidArgument with
/// the name of what is not.
absl::Status CheckObservation(const Observation& observation);

/// From CSV, whose first line names the columns, in any order: parameters, tokens, loss; and, optionally, name,
/// active_parameters (else all), flops (else 6 N D), learning_rate, batch_tokens, data_tokens (which may be empty).
/// Lines that are empty or begin with # are passed over. `file` is used in messages: InvalidArgument as "FILE:LINE:
/// what is wrong".
absl::StatusOr<std::vector<Observation>> ParseObservations(const std::string& text, const std::string& file);
absl::StatusOr<std::vector<Observation>> ReadObservations(const std::string& path);

/// CSV that ParseObservations reads back to the same values.
std::string ToCsv(absl::Span<const Observation> observations);

/// Of everything that a fit goes by, in this order: not of the names and data_tokens.
uint64_t DigestOf(absl::Span<const Observation> observations);

}  // namespace holdfast
