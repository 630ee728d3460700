#pragma once
// What a layer with experts sends for its tokens, counted before anything is sent.

#include <cstdint>

#include "absl/types/span.h"
#include "framework/config/config.h"

namespace holdfast {

/// A group in which tokens travel to the experts (expert_parallel.h).
struct ExpertGroup {
  int64_t chosen = 0;                  // experts of a token
  absl::Span<const int64_t> experts;   // of each member
  absl::Span<const int> nodes, homes;  // see PartStore
  double vector_bytes = 0;             // of a token's activations
};

struct ExpectedBytes {
  double in_node = 0, between_nodes = 0;
  double total() const { return in_node + between_nodes; }
};

/// Bytes that all members together send for one token of a home, the mean over homes, forward and backward, if all sets
/// of `chosen` experts are chosen alike and none is dropped. What ExchangedBytes count, but for the numbers of rows
/// that are told before.
ExpectedBytes ExpectedTokenBytes(const ExpertGroup& group);

/// Bytes that all workers of a replica group together send for one microbatch and layer: to bring the experts to the
/// tokens (weights for each half of the pass, gradients in fp32), or the tokens to the experts, as expected where these
/// are spread evenly. Of elastic.workers; of two if that is one, which sends nothing.
struct ExpertBytes {
  int64_t workers = 0;  // of the group
  double gather = 0, move = 0;
};
ExpertBytes ExpertBytesOf(const Config& config);

}  // namespace holdfast
