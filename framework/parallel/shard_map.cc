#include "framework/parallel/shard_map.h"

#include <algorithm>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

ShardMap::ShardMap(const ParameterLayout& layout, DType compute_dtype, int num_shards, int num_groups)
    : layout_(&layout), compute_dtype_(compute_dtype), num_shards_(num_shards), num_groups_(num_groups) {
  slice_of_chunk_.resize(layout.chunks().size());
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

// A chunk goes to the place in which its middle lies. Places are turned by whole shards from unit to unit: units alike
// would otherwise give the same ranks the larger parts.
void ShardMap::CutUnit(int u) {
  const Unit& unit = layout_->units()[static_cast<size_t>(u)];
  const int64_t places = num_slices();
  std::vector<Range>& slices = slice_chunks_.emplace_back(static_cast<size_t>(places));
  int64_t before = 0;
  int chunk = unit.first_chunk;
  const int last = unit.first_chunk + unit.num_chunks;
  for (int64_t place = 0; place < places; ++place) {
    const auto slice = static_cast<int>((place + int64_t{u} * num_groups_) % places);
    Range& range = slices[static_cast<size_t>(slice)];
    range.begin = chunk;
    for (; chunk < last; ++chunk) {
      const int64_t elements = layout_->chunks()[static_cast<size_t>(chunk)].elements;
      const int64_t middle = before + elements / 2;
      if (place + 1 < places && middle * places >= (place + 1) * unit.elements) break;
      before += elements;
      slice_of_chunk_[static_cast<size_t>(chunk)] = slice;
    }
    range.end = chunk;
  }
}

Range ShardMap::SliceChunks(int unit, int slice) const {
  return slice_chunks_[static_cast<size_t>(unit)][static_cast<size_t>(slice)];
}

Range ShardMap::ShardChunks(int unit, int shard) const {
  return {SliceChunks(unit, shard * num_groups_).begin, SliceChunks(unit, (shard + 1) * num_groups_ - 1).end};
}

Range ShardMap::Elements(int unit, Range chunks) const {
  if (chunks.empty()) return {};
  const int64_t offset = layout_->units()[static_cast<size_t>(unit)].offset;
  const Chunk& first = layout_->chunks()[static_cast<size_t>(chunks.begin)];
  const Chunk& last = layout_->chunks()[static_cast<size_t>(chunks.end - 1)];
  return {first.offset - offset, last.offset + last.elements - offset};
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
  return layout_->parameters()[static_cast<size_t>(parameter)].ReadType(compute_dtype_);
}

Range ShardMap::ShardImage(int unit, int shard) const {
  const std::vector<ParameterPiece> pieces = Pieces(unit, ShardElements(unit, shard));
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
