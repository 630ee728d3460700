#pragma once
// What the backward kernels do with tiles of scores: probabilities, hiding, dropout, gradients of scores.

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"

namespace holdfast::kernels {

// --- where rows are keys ---------------------------------------------------------------------------------------------

inline constexpr uint32_t kDropped = 0x8000;  // the sign of a probability in bf16

/// lse or delta of the two columns a lane has in 8 of them.
__device__ __forceinline__ float2 OfColumns(Place stats, int n) {
  return *reinterpret_cast<const float2*>(Shared(stats + (8 * n + LaneId() % 4 * 2) * 4));
}

/// Turns scores^T (keys, queries) into probabilities.
template <int kM, int kN>
__device__ __forceinline__ void Probabilities(Fragments<kM, kN>& scores, Place lse, float scale_log2) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 subtracted = OfColumns(lse, n);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[m][n][i] = Exp2(fmaf(scores[m][n][i], scale_log2, i % 2 == 0 ? -subtracted.x : -subtracted.y));
      }
    }
  }
}

/// `key` and `query` are those of the lane's first element.
template <int kM, int kN, class Sizes>
__device__ __forceinline__ void HideQueries(Fragments<kM, kN>& probabilities, const Sizes& s, int key, int query) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const decltype(QueriesOf(s, key)) seeing[2] = {QueriesOf(s, key + 16 * m), QueriesOf(s, key + 16 * m + 8)};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!seeing[i / 2].has(query + 8 * n + i % 2)) probabilities[m][n][i] = 0;
      }
    }
  }
}

/// 16 queries' probabilities as an operand: marks the dropped ones in `marked`, and leaves them out of `kept`.
template <int kM>
__device__ __forceinline__ void DropTransposed(uint32_t (&marked)[kM][4], uint32_t (&kept)[kM][4],
                                               const AttentionSizes& s, uint64_t first, int key, int query) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const unsigned keeps = KeepsOfKeyRows(s, first, key + 16 * m, query + 8 * n);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t& pair = marked[m][2 * n + half];
        const bool low = keeps >> (2 * half) & 1u, high = keeps >> (2 * half + 1) & 1u;
        kept[m][2 * n + half] = pair & ((low ? 0xffffu : 0) | (high ? 0xffff0000u : 0));
        pair |= (low ? 0 : kDropped) | (high ? 0 : kDropped << 16);
      }
    }
  }
}

/// Makes an operand of 16 queries' dS^T from dP^T and their probabilities, `marked` where they are dropped.
template <bool kDrops, int kM, int kN>
__device__ __forceinline__ void ScoreGradients(uint32_t (&gradients)[kM][4], const Fragments<kM, kN>& dp, int k,
                                               const uint32_t (&marked)[kM][4], Place delta, float drop_scale) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 subtracted = OfColumns(delta, 2 * k + r / 2);
      float low = dp[m][2 * k + r / 2][r % 2 * 2], high = dp[m][2 * k + r / 2][r % 2 * 2 + 1];
      uint32_t bits = marked[m][r];
      if (kDrops) {
        low = bits & kDropped ? 0 : low * drop_scale;
        high = bits & kDropped << 16 ? 0 : high * drop_scale;
        bits &= ~(kDropped | kDropped << 16);
      }
      gradients[m][r] = PackBf16(__uint_as_float(bits << 16) * (low - subtracted.x),
                                 __uint_as_float(bits & 0xffff0000u) * (high - subtracted.y));
    }
  }
}

// --- where rows are queries ------------------------------------------------------------------------------------------

/// Of the lane's rows.
template <int kM>
struct RowStats {
  float lse[kM][2], delta[kM][2];

  __device__ __forceinline__ RowStats(const AttentionStats& stats, int64_t bh, int query) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = bh * stats.stride + query + 16 * m + 8 * half;
        lse[m][half] = stats.lse[at];
        delta[m][half] = stats.delta[at];
      }
    }
  }
};

/// Turns scores into probabilities: `query` and `key` are those of the lane's first element.
template <int kM, int kN, class Sizes>
__device__ __forceinline__ void Probabilities(Fragments<kM, kN>& scores, const RowStats<kM>& row, const Sizes& s,
                                              bool some_hidden, int query, int key) {
  const float scale_log2 = s.scale * kLog2E;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = Exp2(fmaf(scores[m][n][i], scale_log2, -row.lse[m][i / 2]));
    }
  }
  if (!some_hidden) return;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const decltype(KeysOf(s, query)) seen[2] = {KeysOf(s, query + 16 * m), KeysOf(s, query + 16 * m + 8)};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!seen[i / 2].has(key + 8 * n + i % 2)) scores[m][n][i] = 0;
      }
    }
  }
}

/// Probabilities become dS, without the scale.
template <bool kDrops, int kM, int kN>
__device__ __forceinline__ void Differentiate(Fragments<kM, kN>& probabilities, const Fragments<kM, kN>& dp,
                                              const RowStats<kM>& row, const AttentionSizes& s, uint64_t first,
                                              int query, int key) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const unsigned keeps = kDrops ? KeepsOfQueryRows(s, first, query + 16 * m, key + 8 * n) : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float d = dp[m][n][i];
        if (kDrops) d = keeps >> i & 1u ? d * s.drop_scale : 0;
        probabilities[m][n][i] *= d - row.delta[m][i / 2];
      }
    }
  }
}

}  // namespace holdfast::kernels
