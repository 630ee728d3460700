#include "checkpoint/saved_model.h"
#include "checkpoint/saved_model_reader.h"
#include "framework/base/status.h"

namespace holdfast {

absl::Status LoadWeights(const std::string& directory, const ParameterLayout& layout, const TensorMap& map,
                         const std::function<bool(const std::string&)>& ignorable, absl::Span<float> values) {
  HOLDFAST_CHECK(static_cast<int64_t>(values.size()) == layout.elements());
  ASSIGN_OR_RETURN(const SavedModelReader reader, SavedModelReader::Open(directory, layout, map, ignorable));
  return reader.Read(0, values);
}

}  // namespace holdfast
