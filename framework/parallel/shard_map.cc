#include "framework/parallel/shard_map.h"

#include <algorithm>
#include <cmath>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

ShardMap::ShardMap(const ParameterLayout& layout, DType compute_dtype, const Placement& placement)
    : layout_(&layout), compute_dtype_(compute_dtype), placement_(&placement) {
  const size_t parts = static_cast<size_t>(layout.num_units()) * static_cast<size_t>(placement.size());
  cell_of_chunk_.resize(layout.chunks().size());
  summed_.resize(parts);
  served_.resize(parts);
  for (int u = 0; u < layout.num_units(); ++u) {
    CutUnit(u);
    const Unit& unit = layout.units()[static_cast<size_t>(u)];
    int64_t bytes = 0;
    for (int i = unit.first_parameter; i < unit.first_parameter + unit.num_parameters; ++i) {
      image_offset_.push_back(bytes);
      const int64_t elements = layout.parameters()[static_cast<size_t>(i)].shape.elements();
      bytes += elements * static_cast<int64_t>(kernels::SizeOf(ImageDType(i)));
      bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    image_bytes_.push_back(bytes);
  }
}

// A chunk goes to the cell in which a certain point of it lies, in each unit another one: with the same point in all,
// units alike would give the same ranks the larger parts.
void ShardMap::CutUnit(int u) {
  constexpr double kGoldenRatio = 0.6180339887498949;  // its multiples are spread evenly over [0, 1)
  const Unit& unit = layout_->units()[static_cast<size_t>(u)];
  const double at = std::fmod((u + 1) * kGoldenRatio, 1.0);
  const int64_t cells = placement_->num_cells();
  int64_t before = 0;
  for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
    const int64_t elements = layout_->chunks()[static_cast<size_t>(chunk)].elements;
    const int64_t point = before + static_cast<int64_t>(at * static_cast<double>(elements));
    before += elements;
    // Cells of a placement with more of them lie inside those of one with fewer, because the quotient is exact.
    const auto cell = static_cast<int>(point * cells / unit.elements);
    cell_of_chunk_[static_cast<size_t>(chunk)] = cell;
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
  for (const Range& run : chunks) elements += Elements(unit, run).size();
  return elements;
}

int64_t ShardMap::CountImageBytes(int unit, const Ranges& chunks) const {
  int64_t bytes = 0;
  for (const Range& run : chunks) bytes += ImageOfChunks(unit, run).size();
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

DType ShardMap::ImageDType(int parameter) const {
  return layout_->parameters()[static_cast<size_t>(parameter)].is_matrix() ? compute_dtype_ : DType::kF32;
}

Range ShardMap::ImageOfChunks(int unit, Range chunks) const {
  const std::vector<ParameterPiece> pieces = Pieces(unit, Elements(unit, chunks));
  if (pieces.empty()) return {};
  const auto byte = [&](int parameter, int64_t element) {
    return ImageOffset(parameter) + element * static_cast<int64_t>(kernels::SizeOf(ImageDType(parameter)));
  };
  return {byte(pieces.front().parameter, pieces.front().begin), byte(pieces.back().parameter, pieces.back().end)};
}

std::vector<Tensor> ShardMap::ImageTensors(int unit, void* image) const {
  std::vector<Tensor> tensors;
  const Unit& u = layout_->units()[static_cast<size_t>(unit)];
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    tensors.push_back({static_cast<char*>(image) + ImageOffset(i), ImageDType(i),
                       layout_->parameters()[static_cast<size_t>(i)].shape});
  }
  return tensors;
}

}  // namespace holdfast
