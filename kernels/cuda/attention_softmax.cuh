#pragma once
// What the forward kernels do with a tile of scores: hiding, the online softmax, dropout.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"

namespace holdfast::kernels {

/// Scores become -infinity where a query must not see the key. `query` and `key` are those of the lane's first element.
template <int kM, int kN, class Sizes>
__device__ __forceinline__ void HideKeys(Fragments<kM, kN>& scores, const Sizes& s, int query, int key) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const decltype(KeysOf(s, query)) seen[2] = {KeysOf(s, query + 16 * m), KeysOf(s, query + 16 * m + 8)};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!seen[i / 2].has(key + 8 * n + i % 2)) scores[m][n][i] = -INFINITY;
      }
    }
  }
}

/// The online softmax of this lane's rows [m][half]; the sums are this lane's part of them.
template <int kM>
struct Softmax {
  float max[kM][2], sum[kM][2];

  __device__ __forceinline__ Softmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      max[m][0] = max[m][1] = kNoScore;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  /// Takes in the maxima of a tile's scores, and brings what has been summed so far to them.
  template <int kN, int kSums>
  __device__ __forceinline__ void Raise(const Fragments<kM, kN>& scores, Fragments<kM, kSums>& sums, float scale_log2) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = max[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 2));
        const float rescale = Exp2((max[m][half] - most) * scale_log2);
#pragma unroll
        for (int n = 0; n < kSums; ++n) {
          sums[m][n][2 * half] *= rescale;
          sums[m][n][2 * half + 1] *= rescale;
        }
        sum[m][half] *= rescale;
        max[m][half] = most;
      }
    }
  }

  /// Scores of columns 16 k to 16 k + 15 become exp(scale * (score - maximum)).
  template <int kN>
  __device__ __forceinline__ void Exponentials(Fragments<kM, kN>& scores, int k, float scale_log2) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float p[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& score = scores[m][2 * k + i / 2][2 * half + i % 2];
          p[i] = score = Exp2(fmaf(score, scale_log2, -max[m][half] * scale_log2));
        }
        sum[m][half] += (p[0] + p[1]) + (p[2] + p[3]);
      }
    }
  }

  __device__ __forceinline__ void SumLanes() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += __shfl_xor_sync(kWholeWarp, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(kWholeWarp, sum[m][half], 2);
      }
    }
  }
};

/// Columns 16 k to 16 k + 15; `query` and `key` are those of the lane's very first element.
template <int kM, int kN>
__device__ __forceinline__ void Drop(Fragments<kM, kN>& probabilities, int k, const AttentionSizes& s, uint64_t first,
                                     int query, int key) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 2 * k; n < 2 * k + 2; ++n) {
      const unsigned keeps = KeepsOfQueryRows(s, first, query + 16 * m, key + 8 * n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((keeps >> i & 1u) == 0) probabilities[m][n][i] = 0;
      }
    }
  }
}

}  // namespace holdfast::kernels
