#pragma once
// Tensors as a manifest lists them, and the layout of the model they are of.

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/nn/layout.h"

namespace holdfast {

std::vector<StoredTensor> TensorsOf(const ParameterLayout& layout);

/// The chunks of the tensors of a manifest: those of the model it was made from, as they follow from the shapes alone.
/// InvalidArgument, naming the tensor, if a shape is none.
absl::StatusOr<ParameterLayout> LayoutOf(const Manifest& manifest);

}  // namespace holdfast
