#include "framework/parallel/shard_map.h"

#include <algorithm>

#include "framework/parallel/used_cells.h"

namespace holdfast {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

ShardMap::ShardMap(const ParameterLayout& layout, DType compute_dtype, const Placement& placement)
    : layout_(&layout),
      compute_dtype_(compute_dtype),
      placement_(&placement),
      cell_of_chunk_(CellsOfChunks(layout, placement.num_cells())) {
  const size_t parts = static_cast<size_t>(layout.num_units()) * static_cast<size_t>(placement.size());
  summed_.resize(parts);
  served_.resize(parts);
  for (int u = 0; u < layout.num_units(); ++u) {
    CutUnit(u);
    const Unit& unit = layout.units()[static_cast<size_t>(u)];
    int64_t bytes = 0;
    for (int i = unit.first_parameter; i < unit.first_parameter + unit.num_parameters; ++i) {
      compute_weight_offset_.push_back(bytes);
      const int64_t elements = layout.parameters()[static_cast<size_t>(i)].shape.elements();
      bytes += elements * static_cast<int64_t>(kernels::SizeOf(ComputeWeightDType(i)));
      bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    compute_weight_bytes_.push_back(bytes);
  }
}

void ShardMap::CutUnit(int u) {
  const Unit& unit = layout_->units()[static_cast<size_t>(u)];
  for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
    const int cell = CellOfChunk(chunk);
    AppendChunk(chunk, &summed_[Index(u, placement_->PrimaryOf(cell))]);
    for (int group = 0; group < placement_->num_groups(); ++group) {
      AppendChunk(chunk, &served_[Index(u, placement_->ServerOf(group, cell))]);
    }
  }
}

Range ShardMap::Elements(int unit, Range chunks) const {
  if (chunks.empty()) return {};
  const int64_t offset = layout_->units()[static_cast<size_t>(unit)].offset;
  const Chunk& first = layout_->chunks()[static_cast<size_t>(chunks.begin)];
  const Chunk& last = layout_->chunks()[static_cast<size_t>(chunks.end - 1)];
  return {first.offset - offset, last.offset + last.elements - offset};
}

int64_t ShardMap::CountElements(int unit, const Ranges& chunks) const {
  int64_t elements = 0;
  for (const Range& range : chunks) elements += Elements(unit, range).size();
  return elements;
}

int64_t ShardMap::CountComputeWeightBytes(int unit, const Ranges& chunks) const {
  int64_t bytes = 0;
  for (const Range& range : chunks) bytes += ComputeWeightsOfChunks(unit, range).size();
  return bytes;
}

std::vector<ParameterPiece> ShardMap::Pieces(int unit, Range range) const {
  std::vector<ParameterPiece> pieces;
  const Unit& u = layout_->units()[static_cast<size_t>(unit)];
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    const ParameterSpec& p = layout_->parameters()[static_cast<size_t>(i)];
    const int64_t begin = std::max(range.begin, p.unit_offset) - p.unit_offset;
    const int64_t end = std::min(range.end, p.unit_offset + p.shape.elements()) - p.unit_offset;
    if (begin < end) pieces.push_back({i, begin, end});
  }
  return pieces;
}

DType ShardMap::ComputeWeightDType(int parameter) const {
  return layout_->parameters()[static_cast<size_t>(parameter)].ReadType(compute_dtype_);
}

Range ShardMap::ComputeWeightsOfChunks(int unit, Range chunks) const {
  const std::vector<ParameterPiece> pieces = Pieces(unit, Elements(unit, chunks));
  if (pieces.empty()) return {};
  const auto byte = [&](int parameter, int64_t element) {
    return ComputeWeightOffset(parameter) +
           element * static_cast<int64_t>(kernels::SizeOf(ComputeWeightDType(parameter)));
  };
  return {byte(pieces.front().parameter, pieces.front().begin), byte(pieces.back().parameter, pieces.back().end)};
}

std::vector<Tensor> ShardMap::ComputeWeightTensors(int unit, void* weights) const {
  std::vector<Tensor> tensors;
  const Unit& u = layout_->units()[static_cast<size_t>(unit)];
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    tensors.push_back({static_cast<char*>(weights) + ComputeWeightOffset(i), ComputeWeightDType(i),
                       layout_->parameters()[static_cast<size_t>(i)].shape});
  }
  return tensors;
}

}  // namespace holdfast
