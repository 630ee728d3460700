#pragma once
// Text generation by ancestral sampling, several sequences at a time. A sequence's tokens are a function of its prompt,
// its number and the options alone: not of what is sampled beside it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

struct SampleOptions {
  int64_t tokens = 200;      // to generate
  double temperature = 0.8;  // 0 = always the likeliest token
  int64_t top_k = 40;        // sample among the k likeliest; 0 = all
  double top_p = 1;  // of those among the likeliest that have this much of their probability together, at least one
  uint64_t seed = 1;
};

/// What says which tokens are likely to follow, for some sequences at a time, which it remembers.
class Decoder {
 public:
  struct Beginning {
    int64_t sequence;
    absl::Span<const int32_t> tokens;  // may be empty
  };
  struct Token {
    int64_t sequence;
    int32_t token;
  };

  virtual ~Decoder() = default;
  virtual int64_t sequences() const = 0;
  /// Tokens that a sequence may have.
  virtual int64_t capacity() const = 0;
  /// Begins these sequences anew: what they held before has no effect on what follows.
  virtual absl::Status Begin(absl::Span<const Beginning> beginnings) = 0;
  /// Adds a token to each of these sequences, which differ. Logits (n, V) of the tokens that follow, readable until the
  /// next call.
  virtual absl::StatusOr<absl::Span<const float>> Add(absl::Span<const Token> tokens) = 0;
};

struct SampleRequest {
  std::vector<int32_t> prompt;  // not empty, at most the decoder's capacity
  uint32_t number = 0;          // samples of one prompt differ by it
};

enum class SampleEnd : uint8_t {
  kTokens,       // as many as were asked for
  kRefused,      // `accept` returned false: end of text, a stop
  kContextFull,  // the decoder takes no more
};

/// Continues all prompts, as many at a time as the decoder has sequences. accept(request, token) is told each token in
/// its order and ends its request by returning false. FailedPrecondition where logits are not finite.
absl::StatusOr<std::vector<SampleEnd>> GenerateTokens(Decoder& decoder, absl::Span<const SampleRequest> requests,
                                                      const SampleOptions& options,
                                                      absl::FunctionRef<bool(size_t request, int32_t token)> accept);

}  // namespace holdfast
