#pragma once
// Which cuBLASLt algorithm to take for which product, as text, so that all ranks can take the same measured ones:
//
//   holdfast-gemm 1 cublasLt 130100
//   m8192_n768_k3072_ntn_bf16_bf16_... 0000000000000015 0000000100000000 ...       (eight words, hexadecimal)
//
// An algorithm's words mean something to one version of cuBLASLt only. Lines are sorted.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace holdfast::kernels {

using GemmAlgorithm = std::array<uint64_t, 8>;  // a cublasLtMatmulAlgo_t

class GemmTable {
 public:
  /// Null if none is pinned.
  const GemmAlgorithm* Find(const std::string& product) const;
  void Pin(const std::string& product, const GemmAlgorithm& algorithm) { algorithms_[product] = algorithm; }
  size_t size() const { return algorithms_.size(); }

  std::string Print(size_t cublaslt_version) const;

  /// Takes the place of what the table holds. What is wrong with the text, if that is so; then nothing changes.
  std::string Parse(const std::string& text, size_t cublaslt_version);

  bool operator==(const GemmTable&) const = default;

 private:
  std::map<std::string, GemmAlgorithm> algorithms_;
};

/// What timing the library's proposals for one product has shown.
struct TunedGemm {
  std::string product;
  GemmAlgorithm algorithm = {};    // the fastest
  bool changed = false;            // it is not the one that the heuristic prefers
  float preferred_ms = 0, ms = 0;  // of that one, of the fastest
};

/// Where a GPU's products get their algorithms from; without anything, from the library's heuristic.
struct GemmChoice {
  const GemmTable* pinned = nullptr;
  /// If set, each product that is not pinned is tuned when it is first asked for, and this is told. The GPU is waited
  /// for, and sums over what c held are wrong.
  std::function<void(const TunedGemm&)> on_tuned = nullptr;
};

}  // namespace holdfast::kernels
