#include "models/sampler.h"

#include <algorithm>
#include <numeric>

#include "framework/base/status.h"
#include "kernels/philox.h"
#include "kernels/portable_math.h"

namespace holdfast {
namespace {

/// A number in [0, 1) for the position-th token.
double Uniform(uint64_t seed, int64_t position) {
  const kernels::Philox4 words = kernels::Philox({.seed = seed}, static_cast<uint64_t>(position));
  return static_cast<double>(words.v[0]) * 0x1p-32;
}

int32_t Choose(const std::vector<float>& logits, const SampleOptions& options, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  const size_t wanted = options.temperature <= 0 ? 1 : static_cast<size_t>(std::max<int64_t>(options.top_k, 0));
  const size_t k = wanted == 0 ? order.size() : std::min(wanted, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), likelier);
  if (k == 1) return order[0];

  const double top = double{logits[static_cast<size_t>(order[0])]};
  std::vector<double> cumulative(k);
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    sum += portable::Exp((double{logits[static_cast<size_t>(order[i])]} - top) / options.temperature);
    cumulative[i] = sum;
  }
  const auto last = options.top_p < 1 ? std::lower_bound(cumulative.begin(), cumulative.end() - 1, options.top_p * sum)
                                      : cumulative.end() - 1;
  const auto chosen = std::upper_bound(cumulative.begin(), last, uniform * *last);
  return order[static_cast<size_t>(chosen - cumulative.begin())];
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> GenerateTokens(NextLogits next_logits, absl::Span<const int32_t> prompt,
                                                    const SampleOptions& options,
                                                    absl::FunctionRef<bool(int32_t token)> accept) {
  HOLDFAST_CHECK(!prompt.empty());
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.tokens; ++i) {
    const size_t context = std::min(tokens.size(), static_cast<size_t>(options.context));
    ASSIGN_OR_RETURN(const std::vector<float> logits, next_logits(absl::MakeConstSpan(tokens).last(context)));
    const int32_t token = Choose(logits, options, Uniform(options.seed, i));
    if (!accept(token)) break;
    tokens.push_back(token);
  }
  return std::vector<int32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end());
}

}  // namespace holdfast
