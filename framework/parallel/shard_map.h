#pragma once
// Where the cells of a placement (placement.h) lie in a model: each is, of every unit, a range of whole chunks,
// balanced by elements; and so what each rank sums and serves: a rank's shard. In the first world of a run that is one
// range of each unit, later it may be more. Also how a unit's compute weights lie in memory, which are what forward and
// backward read: the unit's parameters in order, each in its dtype for computing and 64-byte aligned, so that every
// range of chunks is a range of bytes.

#include <cstdint>
#include <vector>

#include "framework/nn/layout.h"
#include "framework/parallel/placement.h"

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

using Ranges = std::vector<Range>;

class ShardMap {
 public:
  /// `layout` and `placement` must outlive the map.
  ShardMap(const ParameterLayout& layout, DType compute_dtype, const Placement& placement);

  const ParameterLayout& layout() const { return *layout_; }
  DType compute_dtype() const { return compute_dtype_; }
  const Placement& placement() const { return *placement_; }

  int CellOfChunk(int chunk) const { return cell_of_chunk_[static_cast<size_t>(chunk)]; }
  int PrimaryOf(int chunk) const { return placement_->PrimaryOf(CellOfChunk(chunk)); }
  bool Serves(int rank, int chunk) const {
    return placement_->ServerOf(placement_->GroupOf(rank), CellOfChunk(chunk)) == rank;
  }
  /// Of a unit that is cut at parts: who serves one to the group of `rank`.
  int ServerOfPart(int unit, int part, int rank) const {
    const int chunk = layout_->units()[static_cast<size_t>(unit)].parts[static_cast<size_t>(part)];
    return placement_->ServerOf(placement_->GroupOf(rank), CellOfChunk(chunk));
  }
  std::vector<int> Holders(int chunk) const { return placement_->Holders(CellOfChunk(chunk)); }

  /// Chunks (of the layout) of a unit whose gradients `rank` sums, and those that it serves to its group: the fewest
  /// ranges, ascending.
  const Ranges& Summed(int unit, int rank) const { return summed_[Index(unit, rank)]; }
  const Ranges& Served(int unit, int rank) const { return served_[Index(unit, rank)]; }
  /// Elements (of the unit's flat vector) of chunks, and how many they are.
  Range Elements(int unit, Range chunks) const;
  int64_t CountElements(int unit, const Ranges& chunks) const;

  /// The parts of a unit's elements [range) that belong to one parameter each.
  std::vector<ParameterPiece> Pieces(int unit, Range range) const;

  int64_t ComputeWeightBytes(int unit) const { return compute_weight_bytes_[static_cast<size_t>(unit)]; }
  /// Of a parameter's first byte in its unit's compute weights.
  int64_t ComputeWeightOffset(int parameter) const { return compute_weight_offset_[static_cast<size_t>(parameter)]; }
  DType ComputeWeightDType(int parameter) const;
  /// The bytes of chunks in a unit's compute weights.
  Range ComputeWeightsOfChunks(int unit, Range chunks) const;
  int64_t CountComputeWeightBytes(int unit, const Ranges& chunks) const;
  /// Views of a unit's parameters in the compute weights at `weights`.
  std::vector<Tensor> ComputeWeightTensors(int unit, void* weights) const;

 private:
  void CutUnit(int unit);
  size_t Index(int unit, int rank) const {
    return static_cast<size_t>(unit) * static_cast<size_t>(placement_->size()) + static_cast<size_t>(rank);
  }

  const ParameterLayout* layout_;
  DType compute_dtype_;
  const Placement* placement_;
  std::vector<int> cell_of_chunk_;
  std::vector<Ranges> summed_, served_;  // [unit][rank]
  std::vector<int64_t> compute_weight_offset_, compute_weight_bytes_;
};

/// Adds a chunk behind the others.
inline void AppendChunk(int64_t chunk, Ranges* ranges) {
  if (ranges->empty() || ranges->back().end != chunk) ranges->push_back({chunk, chunk});
  ranges->back().end = chunk + 1;
}

}  // namespace holdfast
