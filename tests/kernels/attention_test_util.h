#pragma once
// Problems of attention for tests, and what they should give: the definition (the full T x T matrix) in double
// precision.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/philox.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels::attention_test {

struct Reference {
  std::vector<double> out, lse, d_qkv;
  std::vector<double> out_terms, d_qkv_terms;  // each element's sum over the absolute values of what is added up for it
  std::vector<double> d_qkv_per_delta;         // by how much d_qkv is off where each row's delta is off by its terms
  std::vector<double> d_sinks, d_sinks_terms;  // likewise, with sinks
};

/// Keeps element e of the dropout?
inline bool Kept(const Dropout& dropout, uint64_t e) {
  if (dropout.rate == 0) return true;
  const uint32_t threshold = static_cast<uint32_t>(static_cast<double>(dropout.rate) * 4294967296.0);
  return Philox(dropout.key, e / 4).v[e % 4] >= threshold;
}

/// One query head of one sequence, straight from the definition. Row r of m, columns of head `col`.
class ReferenceHead {
 public:
  /// `sinks`: empty, or a score of each head that is one more in its softmax.
  ReferenceHead(const AttentionShape& shape, const std::vector<float>& sinks, int64_t b, int64_t h)
      : s_(shape), sink_(sinks.empty() ? -INFINITY : sinks[static_cast<size_t>(h)]), b_(b), h_(h) {}

  void Run(const TestMatrix& qkv, const TestMatrix& d_out, Reference& result) {
    const int64_t t = s_.sequence, d = s_.head_dim, g = h_ / (s_.num_heads / s_.num_kv_heads);
    const int64_t q = h_ * d, k = (s_.num_heads + g) * d, v = (s_.num_heads + s_.num_kv_heads + g) * d;
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    const double keep_scale = 1.0 / (1.0 - static_cast<double>(s_.dropout.rate));
    for (int64_t i = 0; i < t; ++i) {
      const bool packed = s_.documents.begin != nullptr;
      const int64_t begin = packed ? s_.documents.begin[b_ * t + i] : 0,
                    end = packed ? s_.documents.end[b_ * t + i] : t;
      const int64_t first = s_.window == 0 ? begin : std::max(begin, i - s_.window + 1), last = s_.causal ? i : end - 1;
      std::vector<double> p(t), dp(t);
      double max = sink_, sum = 0, delta = 0, delta_terms = 0;
      for (int64_t j = first; j <= last; ++j) {
        for (int64_t c = 0; c < d; ++c) p[j] += At(qkv, i, q + c) * At(qkv, j, k + c) * scale;
        max = std::max(max, p[j]);
      }
      for (int64_t j = first; j <= last; ++j) sum += std::exp(p[j] - max);
      sum += std::exp(sink_ - max);
      result.lse[(b_ * s_.num_heads + h_) * t + i] = max + std::log(sum);
      for (int64_t j = first; j <= last; ++j) {
        p[j] = std::exp(p[j] - max) / sum;
        const uint64_t e = static_cast<uint64_t>(((b_ * s_.num_heads + h_) * t + i) * t + j);
        const double kept = Kept(s_.dropout, e) ? keep_scale : 0.0;
        for (int64_t c = 0; c < d; ++c) {
          const double out = p[j] * kept * At(qkv, j, v + c), d_value = p[j] * kept * At(d_out, i, h_ * d + c);
          result.out[OutIndex(i, c)] += out;
          result.out_terms[OutIndex(i, c)] += std::abs(out);
          dp[j] += At(d_out, i, h_ * d + c) * At(qkv, j, v + c) * kept;
          result.d_qkv[Index(j, v + c)] += d_value;
          result.d_qkv_terms[Index(j, v + c)] += std::abs(d_value);
        }
        delta += p[j] * dp[j];
      }
      for (int64_t c = 0; c < d; ++c) {
        delta_terms += std::abs(At(d_out, i, h_ * d + c)) * result.out_terms[OutIndex(i, c)];
      }
      result.d_sinks[h_] -= std::exp(sink_ - max) / sum * delta;
      result.d_sinks_terms[h_] += std::exp(sink_ - max) / sum * delta_terms;
      for (int64_t j = first; j <= last; ++j) {
        const double ds = p[j] * (dp[j] - delta) * scale, per_delta = p[j] * delta_terms * scale;
        for (int64_t c = 0; c < d; ++c) {
          for (const auto& [at, factor] :
               {std::pair(Index(i, q + c), At(qkv, j, k + c)), std::pair(Index(j, k + c), At(qkv, i, q + c))}) {
            result.d_qkv[at] += ds * factor;
            result.d_qkv_terms[at] += std::abs(ds * factor);
            result.d_qkv_per_delta[at] += per_delta * std::abs(factor);
          }
        }
      }
    }
  }

 private:
  double At(const TestMatrix& m, int64_t row, int64_t col) const {
    return static_cast<double>(m.Get(b_ * s_.sequence + row, col));
  }
  int64_t OutIndex(int64_t row, int64_t c) const {
    return ((b_ * s_.sequence + row) * s_.num_heads + h_) * s_.head_dim + c;
  }
  int64_t Index(int64_t row, int64_t col) const {
    return (b_ * s_.sequence + row) * (s_.num_heads + 2 * s_.num_kv_heads) * s_.head_dim + col;
  }

  const AttentionShape& s_;
  double sink_;
  int64_t b_, h_;
};

inline Reference Expected(const AttentionShape& s, const TestMatrix& qkv, const TestMatrix& d_out,
                          const std::vector<float>& sinks = {}) {
  const int64_t rows = s.batch * s.sequence;
  const std::vector<double> out(rows * s.num_heads * s.head_dim), lse(rows * s.num_heads),
      d_qkv(rows * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim);
  const std::vector<double> d_sinks(static_cast<size_t>(s.num_heads));
  Reference result{out, lse, d_qkv, out, d_qkv, d_qkv, d_sinks, d_sinks};
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.num_heads; ++h) ReferenceHead(s, sinks, b, h).Run(qkv, d_out, result);
  }
  return result;
}

/// Whether rows begin at multiples of 16 bytes, with a multiple of that between them: bf16 on a GPU then goes to the
/// tensor cores.
enum class Alignment : uint8_t { kOdd, kSixteenBytes };

/// Inputs and outputs of one call of each direction.
struct Problem {
  AttentionShape shape;
  TestMatrix qkv, d_out, out, d_qkv;
  std::vector<float> lse;
  std::vector<float> sinks = {}, d_sinks = {};  // of each head, or none

  Problem(const AttentionShape& s, DType dtype, Rng& rng, Alignment alignment = Alignment::kOdd)
      : shape(s),
        qkv(dtype, Rows(), QkvCols(), QkvCols() + (alignment == Alignment::kOdd ? 11 : 24)),
        d_out(dtype, Rows(), OutCols(), OutCols() + (alignment == Alignment::kOdd ? 1 : 8)),
        out(dtype, Rows(), OutCols(), OutCols() + (alignment == Alignment::kOdd ? 5 : 16)),
        d_qkv(dtype, Rows(), QkvCols(), QkvCols() + (alignment == Alignment::kOdd ? 3 : 8)),
        lse(static_cast<size_t>(Rows() * s.num_heads), NAN) {
    qkv.Fill(rng, 1.5f);
    d_out.Fill(rng);
  }

  int64_t Rows() const { return shape.batch * shape.sequence; }
  int64_t OutCols() const { return shape.num_heads * shape.head_dim; }
  int64_t QkvCols() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }

  void Run(TestOps& ops) {
    ops->AttentionForward(out.view(), lse.data(), qkv.view(), shape);
    if (!sinks.empty()) ops->SinkForward(out.view(), lse.data(), sinks.data(), shape);
    ops->AttentionBackward(d_qkv.view(), d_out.view(), out.view(), lse.data(), qkv.view(), shape);
    if (sinks.empty()) return;
    d_sinks.assign(sinks.size(), NAN);
    ops->SinkBackward(d_sinks.data(), d_out.view(), out.view(), lse.data(), sinks.data(), shape);
  }

  /// All results.
  std::vector<float> Results() const {
    std::vector<float> all = out.Values();
    const std::vector<float> gradient = d_qkv.Values();
    all.insert(all.end(), gradient.begin(), gradient.end());
    all.insert(all.end(), lse.begin(), lse.end());
    all.insert(all.end(), d_sinks.begin(), d_sinks.end());
    return all;
  }
};

/// What `problem` holds after a run, against the definition. `products_in_bf16`: of probabilities and their gradients.
/// No element may be off by more than what is rounded on the way to it, whatever the values: of bf16 the result; the
/// probabilities and their gradients, each, in products; and of the gradients of queries and keys also delta, which is
/// computed from `out` as stored: twice with sinks.
inline void ExpectDefinition(const Problem& problem, bool products_in_bf16) {
  const DType dtype = problem.qkv.dtype();
  const Reference expected = Expected(problem.shape, problem.qkv, problem.d_out, problem.sinks);
  const double result = dtype == DType::kF32 ? 0 : kBF16Rounding, product = products_in_bf16 ? result : 0;
  const double stored = problem.sinks.empty() ? 1 : 2, of_out = stored * result;
  const std::vector<float> out = problem.out.Values(), d_qkv = problem.d_qkv.Values();
  const auto allowed_of_out = [&](size_t i) {
    const double before = product * expected.out_terms[i];
    return before + (of_out + 1e-5) * (std::abs(expected.out[i]) + before) + 1e-5;
  };
  const auto allowed_of_gradients = [&](size_t i) {
    const double of_delta = (of_out + product) * 1.01 * expected.d_qkv_per_delta[i];
    const double before = of_delta + product * (expected.d_qkv_terms[i] + of_delta);
    return before + (result + 4e-5) * (std::abs(expected.d_qkv[i]) + before) + 4e-5;
  };
  EXPECT_LE(RelativeError(out, expected.out), stored * RoundingError(dtype));
  EXPECT_LE(LargestShare(out, expected.out, allowed_of_out), 1);
  EXPECT_LE(MaxError(problem.lse, expected.lse), 4e-6);
  // With T = 1, where the gradients of query and key are zero and only delta's rounding is left of them, up to 0.009
  // was seen.
  EXPECT_LE(RelativeError(d_qkv, expected.d_qkv), stored * (dtype == DType::kF32 ? 4e-6 : 2e-2));
  EXPECT_LE(LargestShare(d_qkv, expected.d_qkv, allowed_of_gradients), 1);
  const std::vector<double> expected_d_sinks = problem.sinks.empty() ? std::vector<double>{} : expected.d_sinks;
  EXPECT_LE(LargestShare(problem.d_sinks, expected_d_sinks,
                         [&](size_t h) { return (of_out + product + 2e-5) * 1.01 * expected.d_sinks_terms[h] + 1e-5; }),
            1);
  EXPECT_TRUE(problem.out.PaddingIntact());
  EXPECT_TRUE(problem.d_qkv.PaddingIntact());
}

inline std::string NameOf(const AttentionShape& s, DType dtype) {
  return "B " + std::to_string(s.batch) + " T " + std::to_string(s.sequence) + " H " + std::to_string(s.num_heads) +
         "/" + std::to_string(s.num_kv_heads) + " D " + std::to_string(s.head_dim) + " dropout " +
         std::to_string(s.dropout.rate) + " window " + std::to_string(s.window) + (s.causal ? "" : " not causal") +
         (s.documents.begin == nullptr ? "" : " in documents") + (dtype == DType::kBF16 ? " bf16" : " fp32");
}

inline void ExpectCorrect(TestOps& ops, const AttentionShape& s, DType dtype, Rng& rng,
                          Alignment alignment = Alignment::kOdd) {
  SCOPED_TRACE(NameOf(s, dtype));
  Problem problem(s, dtype, rng, alignment);
  problem.Run(ops);
  ExpectDefinition(problem, alignment == Alignment::kSixteenBytes);  // tensor cores
}

inline void ExpectCorrectWithSinks(TestOps& ops, const AttentionShape& s, DType dtype, Rng& rng,
                                   Alignment alignment = Alignment::kOdd) {
  SCOPED_TRACE(NameOf(s, dtype));
  Problem problem(s, dtype, rng, alignment);
  problem.sinks = RandomVector(rng, s.num_heads, 2.0f);
  problem.Run(ops);
  ExpectDefinition(problem, alignment == Alignment::kSixteenBytes);  // tensor cores
}

inline AttentionShape Shape(int64_t b, int64_t t, int64_t h, int64_t g, int64_t d, float dropout = 0) {
  return {b, t, h, g, d, {dropout, {.seed = 77, .step = 3, .microbatch = 2, .site = 9}}};
}

inline AttentionShape Windowed(AttentionShape shape, int64_t window) {
  shape.window = window;
  return shape;
}

inline AttentionShape NotCausal(AttentionShape shape) {
  shape.causal = false;
  return shape;
}

/// See TestDocuments.
inline AttentionShape InDocuments(AttentionShape shape, const std::vector<int64_t>& lengths) {
  static std::vector<std::unique_ptr<TestDocuments>> kept;  // a shape is a view
  kept.push_back(std::make_unique<TestDocuments>(shape.batch, shape.sequence, lengths));
  shape.documents = kept.back()->view();
  return shape;
}

}  // namespace holdfast::kernels::attention_test
