#include "framework/nn/layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Cuts one parameter into ranges of whole rows and appends them.
void AppendChunks(const ParameterSpec& spec, int parameter, std::vector<Chunk>* chunks) {
  const int64_t cols = spec.shape.cols();
  const int64_t rows_per_chunk = std::max<int64_t>(1, ParameterLayout::kChunkElements / cols);
  for (int64_t row = 0; row < spec.shape.rows(); row += rows_per_chunk) {
    const int64_t num_rows = std::min(rows_per_chunk, spec.shape.rows() - row);
    chunks->push_back({.parameter = parameter,
                       .first_row = row,
                       .num_rows = num_rows,
                       .offset = spec.offset + row * cols,
                       .elements = num_rows * cols});
  }
}

}  // namespace

ParameterLayout::ParameterLayout(std::vector<ParameterSpec> parameters, std::vector<std::string> unit_names)
    : parameters_(std::move(parameters)) {
  size_t next = 0;
  for (size_t u = 0; u < unit_names.size(); ++u) {
    Unit unit{.name = std::move(unit_names[u]),
              .first_parameter = static_cast<int>(next),
              .first_chunk = static_cast<int>(chunks_.size()),
              .offset = elements_};
    for (; next < parameters_.size() && parameters_[next].unit == static_cast<int>(u); ++next) {
      ParameterSpec& spec = parameters_[next];
      HOLDFAST_CHECK(spec.shape.elements() > 0);
      const int64_t fused_rows = std::accumulate(spec.fused.begin(), spec.fused.end(), int64_t{0});
      HOLDFAST_CHECK(spec.fused.empty() || fused_rows == spec.shape[0]);
      const int parts = static_cast<int>(unit.parts.size());
      const bool first = static_cast<int>(next) == unit.first_parameter;
      HOLDFAST_CHECK(spec.part == parts - 1 || (spec.part == parts && (parts > 0 || first)));
      if (spec.part == parts) unit.parts.push_back(static_cast<int>(chunks_.size()));
      spec.offset = elements_;
      spec.unit_offset = elements_ - unit.offset;
      AppendChunks(spec, static_cast<int>(next), &chunks_);
      elements_ += spec.shape.elements();
    }
    unit.num_parameters = static_cast<int>(next) - unit.first_parameter;
    unit.num_chunks = static_cast<int>(chunks_.size()) - unit.first_chunk;
    unit.elements = elements_ - unit.offset;
    units_.push_back(std::move(unit));
  }
  HOLDFAST_CHECK(next == parameters_.size());  // a unit out of order, or without a name
}

int ParameterLayout::Find(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const ParameterSpec& spec) { return spec.name == name; });
  return found == parameters_.end() ? -1 : static_cast<int>(found - parameters_.begin());
}

}  // namespace holdfast
