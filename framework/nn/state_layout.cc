#include "framework/nn/state_layout.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

StateLayout::StateLayout(const ParameterLayout& parameters, std::vector<std::vector<Plane>> planes)
    : parameters_(&parameters), planes_(std::move(planes)), names_{kWeightPlane} {
  HOLDFAST_CHECK(planes_.size() == parameters.parameters().size());
  for (size_t p = 0; p < planes_.size(); ++p) {
    HOLDFAST_CHECK(!planes_[p].empty() && planes_[p].size() <= kMaxPlanes && planes_[p][0].name == kWeightPlane);
    std::vector<size_t>& indices = name_of_.emplace_back();
    for (const Plane& plane : planes_[p]) {
      const auto found = std::find(names_.begin(), names_.end(), plane.name);
      indices.push_back(static_cast<size_t>(found - names_.begin()));
      if (found == names_.end()) names_.push_back(plane.name);
    }
    elements_ += static_cast<int64_t>(planes_[p].size()) * parameters.parameters()[p].shape.elements();
  }
}

size_t StateLayout::LargestChunkBytes() const {
  size_t bytes = 0;
  for (const Chunk& chunk : parameters_->chunks()) bytes = std::max(bytes, ChunkBytes(chunk));
  return bytes;
}

void BeginPlanes(const StateLayout& layout, const Chunk& chunk, absl::Span<float> values) {
  const std::vector<Plane>& planes = layout.PlanesOf(chunk.parameter);
  const auto elements = static_cast<size_t>(chunk.elements);
  for (size_t p = 1; p < planes.size(); ++p) {
    const absl::Span<float> plane = values.subspan(p * elements, elements);
    if (planes[p].begins_as_weight) {
      std::copy_n(values.begin(), elements, plane.begin());
    } else {
      std::fill(plane.begin(), plane.end(), 0.0f);
    }
  }
}

}  // namespace holdfast
