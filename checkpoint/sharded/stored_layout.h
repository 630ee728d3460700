#pragma once
// The layout of the model whose tensors a manifest lists.

#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/nn/layout.h"

namespace holdfast {

/// The chunks of the tensors of a manifest: those of the model it was made from, as they follow from the shapes alone.
/// InvalidArgument, naming the tensor, if a shape is none.
absl::StatusOr<ParameterLayout> LayoutOf(const Manifest& manifest);

}  // namespace holdfast
