#include "models/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "framework/base/status.h"
#include "kernels/philox.h"
#include "kernels/portable_math.h"

namespace holdfast {
namespace {

/// A number in [0, 1) for the position-th token of a sample.
double Uniform(uint64_t seed, uint32_t number, int64_t position) {
  const kernels::Philox4 words = kernels::Philox({.seed = seed, .microbatch = number}, static_cast<uint64_t>(position));
  return static_cast<double>(words.v[0]) * 0x1p-32;
}

/// The k likeliest, the likeliest first, ties to the lower token.
std::vector<int32_t> Likeliest(absl::Span<const float> logits, size_t k) {
  const auto likelier = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::vector<int32_t> order(k);
  std::iota(order.begin(), order.end(), 0);
  std::make_heap(order.begin(), order.end(), likelier);  // the least likely in front
  for (size_t i = k; i < logits.size(); ++i) {
    if (!(logits[i] > logits[static_cast<size_t>(order.front())])) continue;
    std::pop_heap(order.begin(), order.end(), likelier);
    order.back() = static_cast<int32_t>(i);
    std::push_heap(order.begin(), order.end(), likelier);
  }
  std::sort_heap(order.begin(), order.end(), likelier);
  return order;
}

int32_t Choose(absl::Span<const float> logits, const SampleOptions& options, double uniform) {
  const size_t wanted = options.temperature <= 0 ? 1 : static_cast<size_t>(std::max<int64_t>(options.top_k, 0));
  const size_t k = wanted == 0 ? logits.size() : std::min(wanted, logits.size());
  const std::vector<int32_t> order = Likeliest(logits, k);
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

/// Requests on their way through the sequences of a decoder.
class Generation {
 public:
  Generation(Decoder& decoder, absl::Span<const SampleRequest> requests, const SampleOptions& options)
      : decoder_(decoder), requests_(requests), options_(options), ends_(requests.size()) {
    running_.resize(std::min(requests.size(), static_cast<size_t>(decoder.sequences())));
  }

  absl::StatusOr<std::vector<SampleEnd>> Run(absl::FunctionRef<bool(size_t request, int32_t token)> accept) {
    for (;;) {
      RETURN_IF_ERROR(Begin());
      std::vector<Decoder::Token> tokens;
      for (size_t i = 0; i < running_.size(); ++i) {
        if (running_[i].has_value()) tokens.push_back({static_cast<int64_t>(i), running_[i]->next});
      }
      if (tokens.empty()) return std::move(ends_);
      ASSIGN_OR_RETURN(const absl::Span<const float> logits, decoder_.Add(tokens));
      const size_t vocabulary = logits.size() / tokens.size();
      for (size_t i = 0; i < tokens.size(); ++i) {
        const absl::Span<const float> of_token = logits.subspan(i * vocabulary, vocabulary);
        if (!std::ranges::all_of(of_token, [](float logit) { return std::isfinite(logit); })) {
          return absl::FailedPreconditionError(
              "the model's logits are not finite, so no token is likelier than another: it has diverged");
        }
        Take(static_cast<size_t>(tokens[i].sequence), of_token, accept);
      }
    }
  }

 private:
  struct Running {
    size_t request;
    int32_t next;      // token that the decoder has not been told
    int64_t length;    // of the sequence with it
    int64_t made = 0;  // tokens
  };

  /// Gives free sequences to the next requests.
  absl::Status Begin() {
    std::vector<Decoder::Beginning> beginnings;
    for (size_t i = 0; i < running_.size() && next_request_ < requests_.size(); ++i) {
      if (running_[i].has_value()) continue;
      const std::vector<int32_t>& prompt = requests_[next_request_].prompt;
      HOLDFAST_CHECK(!prompt.empty() && static_cast<int64_t>(prompt.size()) <= decoder_.capacity());
      running_[i] = {.request = next_request_++, .next = prompt.back(), .length = static_cast<int64_t>(prompt.size())};
      beginnings.push_back({static_cast<int64_t>(i), absl::MakeConstSpan(prompt).first(prompt.size() - 1)});
    }
    return beginnings.empty() ? absl::OkStatus() : decoder_.Begin(beginnings);
  }

  void Take(size_t sequence, absl::Span<const float> logits,
            absl::FunctionRef<bool(size_t request, int32_t token)> accept) {
    Running& running = *running_[sequence];
    const uint32_t number = requests_[running.request].number;
    running.next = Choose(logits, options_, Uniform(options_.seed, number, running.made));
    SampleEnd& end = ends_[running.request];
    if (!accept(running.request, running.next)) {
      end = SampleEnd::kRefused;
    } else if (++running.made == options_.tokens) {
      end = SampleEnd::kTokens;
    } else if (++running.length > decoder_.capacity()) {
      end = SampleEnd::kContextFull;
    } else {
      return;
    }
    running_[sequence].reset();
  }

  Decoder& decoder_;
  absl::Span<const SampleRequest> requests_;
  const SampleOptions& options_;
  std::vector<std::optional<Running>> running_;  // of each sequence
  size_t next_request_ = 0;
  std::vector<SampleEnd> ends_;
};

}  // namespace

absl::StatusOr<std::vector<SampleEnd>> GenerateTokens(Decoder& decoder, absl::Span<const SampleRequest> requests,
                                                      const SampleOptions& options,
                                                      absl::FunctionRef<bool(size_t request, int32_t token)> accept) {
  return Generation(decoder, requests, options).Run(accept);
}

}  // namespace holdfast
