#pragma once
// Where shards and slices (placement.h) lie in a model: of every unit a contiguous run of whole chunks, balanced by
// elements. Also how a unit lies in memory while it is served: its image, the unit's parameters in order, each in the
// dtype that forward and backward read and 64-byte aligned, so that every shard is one run of bytes of it.

#include <cstdint>
#include <vector>

#include "framework/nn/layout.h"

namespace holdfast {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Elements [begin, end) of parameter `parameter`, counted from its own first.
struct ParameterPiece {
  int parameter = 0;
  int64_t begin = 0, end = 0;
};

class ShardMap {
 public:
  /// `layout` must outlive the map. Shard s is slices s * num_groups ... (s + 1) * num_groups - 1.
  ShardMap(const ParameterLayout& layout, DType compute_dtype, int num_shards, int num_groups);

  const ParameterLayout& layout() const { return *layout_; }
  DType compute_dtype() const { return compute_dtype_; }
  int num_shards() const { return num_shards_; }
  int num_slices() const { return num_shards_ * num_groups_; }

  /// Chunks (of the layout) and elements (of the unit's flat vector) of a slice or shard of a unit.
  Range SliceChunks(int unit, int slice) const;
  Range SliceElements(int unit, int slice) const { return Elements(unit, SliceChunks(unit, slice)); }
  Range ShardChunks(int unit, int shard) const;
  Range ShardElements(int unit, int shard) const { return Elements(unit, ShardChunks(unit, shard)); }
  Range Elements(int unit, Range chunks) const;
  int SliceOfChunk(int chunk) const { return slice_of_chunk_[static_cast<size_t>(chunk)]; }
  int ShardOfChunk(int chunk) const { return SliceOfChunk(chunk) / num_groups_; }

  /// The parts of a unit's elements [range) that belong to one parameter each.
  std::vector<ParameterPiece> Pieces(int unit, Range range) const;

  int64_t ImageBytes(int unit) const { return image_bytes_[static_cast<size_t>(unit)]; }
  /// Of a parameter's first byte in its unit's image.
  int64_t ImageOffset(int parameter) const { return image_offset_[static_cast<size_t>(parameter)]; }
  DType ImageDType(int parameter) const;
  /// The bytes of a shard in a unit's image.
  Range ShardImage(int unit, int shard) const;
  /// Views of a unit's parameters in the image at `image`.
  std::vector<Tensor> ImageTensors(int unit, void* image) const;

 private:
  void CutUnit(int unit);

  const ParameterLayout* layout_;
  DType compute_dtype_;
  int num_shards_, num_groups_;
  std::vector<std::vector<Range>> slice_chunks_;  // [unit][slice]
  std::vector<int> slice_of_chunk_;
  std::vector<int64_t> image_offset_, image_bytes_;
};

}  // namespace holdfast
