#pragma once
// What product_versions.cc asks of each version of the matrix product.

#include <cstdint>

namespace holdfast_bench {

/// c (m, n) = op(a) (m, k) * op(b) (k, n), all rows contiguous. Types: fp32, or bf16 (c too, unless a is transposed).
struct Product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  bool bf16, native;  // native: by the processor's bf16 dot products
  const void *a, *b;
  void* c;
};

}  // namespace holdfast_bench
