#pragma once
// Which cuBLASLt algorithm to take for which product, as text, so that all ranks can take the same measured ones:
//
//   holdfast-gemm 2 cublasLt 130100
//   m8192_n768_k3072_ntn_bf16_bf16_... 0000000000000015 0000000100000000 ...       (eight words, hexadecimal)
//   m8192_n3072_k768_ntn_bf16_bf16_bias16_gelu_... apart
//
// An algorithm's words mean something to one version of cuBLASLt only. "apart": without what the name says that comes
// after the product (GELU, its derivative, sums), which other kernels do. Lines are sorted. Version 1 has no "apart".

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace holdfast::kernels {

using GemmAlgorithm = std::array<uint64_t, 8>;  // a cublasLtMatmulAlgo_t

class GemmTable {
 public:
  /// Null if none is pinned.
  const GemmAlgorithm* Find(const std::string& product) const;
  void Pin(const std::string& product, const GemmAlgorithm& algorithm) { products_[product] = algorithm; }
  /// Whether what comes after this product is done by other kernels.
  bool IsApart(const std::string& product) const;
  void PinApart(const std::string& product) { products_[product] = std::nullopt; }
  size_t size() const { return products_.size(); }

  std::string Print(size_t cublaslt_version) const;

  /// Takes the place of what the table holds. What is wrong with the text, if that is so; then nothing changes.
  std::string Parse(const std::string& text, size_t cublaslt_version);

  bool operator==(const GemmTable&) const = default;

 private:
  std::map<std::string, std::optional<GemmAlgorithm>> products_;  // without one: apart
};

/// What timing the library's proposals for one product has shown.
struct TunedGemm {
  std::string product;
  GemmAlgorithm algorithm = {};    // the fastest
  bool apart = false;              // it is faster still to do what comes after the product by other kernels
  bool changed = false;            // the choice is not what it would be without a table
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
