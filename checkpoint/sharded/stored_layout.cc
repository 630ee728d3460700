#include "checkpoint/sharded/stored_layout.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {

absl::StatusOr<ParameterLayout> LayoutOf(const Manifest& manifest) {
  std::vector<ParameterSpec> parameters;
  int64_t elements = 0;
  for (const StoredTensor& tensor : manifest.tensors) {
    int64_t product = 1;
    bool valid = !tensor.shape.empty() && tensor.shape.size() <= Shape::kMaxRank;
    for (const int64_t dim : tensor.shape) valid = valid && dim > 0 && !__builtin_mul_overflow(product, dim, &product);
    if (!valid || __builtin_add_overflow(elements, product, &elements)) {
      return absl::InvalidArgumentError(absl::StrCat(manifest.name.ToString(), ": tensor ", tensor.name, " of shape [",
                                                     absl::StrJoin(tensor.shape, ", "), "] cannot be read"));
    }
    parameters.push_back({.name = tensor.name, .shape = Shape(absl::MakeConstSpan(tensor.shape))});
  }
  return ParameterLayout(std::move(parameters), {"all"});
}

}  // namespace holdfast
