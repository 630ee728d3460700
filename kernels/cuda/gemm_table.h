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
#include <map>
#include <string>

namespace holdfast::kernels {

using GemmAlgorithm = std::array<uint64_t, 8>;  // a cublasLtMatmulAlgo_t

class GemmTable {
 public:
  /// Null if none is pinned.
  const GemmAlgorithm* Find(const std::string& product) const;
  void Pin(const std::string& product, const GemmAlgorithm& algorithm) { algorithms_[product] = algorithm; }

  std::string Print(size_t cublaslt_version) const;

  /// Takes the place of what the table holds. False, and nothing changes, if the text is malformed or of another
  /// version.
  bool Parse(const std::string& text, size_t cublaslt_version);

  bool operator==(const GemmTable&) const = default;

 private:
  std::map<std::string, GemmAlgorithm> algorithms_;
};

}  // namespace holdfast::kernels
