#pragma once
// All weights of a saved model at once.

#include <functional>
#include <string>

#include "checkpoint/saved_model_reader.h"
#include "framework/base/status.h"

namespace holdfast {

/// `values`: layout.elements() of them. Undefined after an error.
inline absl::Status LoadWeights(const std::string& directory, const ParameterLayout& layout, const TensorMap& map,
                                const std::function<bool(const std::string&)>& ignorable, absl::Span<float> values) {
  ASSIGN_OR_RETURN(const SavedModelReader reader, SavedModelReader::Open(directory, layout, map, ignorable));
  return reader.Read(0, values);
}

}  // namespace holdfast
