#pragma once
// What a training state has of each parameter: planes, named vectors of fp32 values as long as the parameter. The first
// one is its weight, the others are what the optimizer keeps. As the parameters themselves, planes are cut into chunks:
// the state of a chunk is its part of each plane of its parameter, one after the other.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/nn/layout.h"

namespace holdfast {

inline constexpr char kWeightPlane[] = "weight";
inline constexpr char kEmaPlane[] = "ema";  // a moving average of the weight
inline constexpr size_t kMaxPlanes = 8;     // of one parameter

struct Plane {
  std::string name;
  bool begins_as_weight = false;  // else as zero
  friend bool operator==(const Plane&, const Plane&) = default;
};

class StateLayout {
 public:
  /// `planes`: of each parameter of `parameters`, which must outlive this; the first of each is the weight.
  StateLayout(const ParameterLayout& parameters, std::vector<std::vector<Plane>> planes);

  const ParameterLayout& parameters() const { return *parameters_; }
  const std::vector<Plane>& PlanesOf(int parameter) const { return planes_[static_cast<size_t>(parameter)]; }
  size_t NumPlanes(const Chunk& chunk) const { return PlanesOf(chunk.parameter).size(); }

  /// Names of the planes that some parameter has, the weight's first.
  const std::vector<std::string>& names() const { return names_; }
  /// Where the name of a parameter's plane stands in names().
  size_t NameOf(int parameter, size_t plane) const { return name_of_[static_cast<size_t>(parameter)][plane]; }

  /// Bytes of a chunk's state.
  size_t ChunkBytes(const Chunk& chunk) const {
    return static_cast<size_t>(chunk.elements) * NumPlanes(chunk) * sizeof(float);
  }
  size_t LargestChunkBytes() const;
  /// Values of the whole state, in all planes.
  int64_t elements() const { return elements_; }

 private:
  const ParameterLayout* parameters_;
  std::vector<std::vector<Plane>> planes_;
  std::vector<std::string> names_;
  std::vector<std::vector<size_t>> name_of_;
  int64_t elements_ = 0;
};

/// Fills in the planes of a chunk of which `values` (all planes) has the weight, as they begin.
void BeginPlanes(const StateLayout& layout, const Chunk& chunk, absl::Span<float> values);

}  // namespace holdfast
