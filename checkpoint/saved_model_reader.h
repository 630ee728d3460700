#pragma once
// The weights of a saved model as the flat vector of a ParameterLayout, read in pieces: files are mapped, and no more
// is in memory than what is asked for.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/tensor_slices.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

/// Movable. Thread-safety: Read may be called from several threads.
class SavedModelReader {
 public:
  /// Opens the model files in `directory`. Every tensor of the map must be there with its shape; one that the map does
  /// not know is an error, except those for which `ignorable(name)` holds (buffers that are no parameters). All
  /// problems are named in one message (the first ten, and how many more).
  static absl::StatusOr<SavedModelReader> Open(const std::string& directory, const ParameterLayout& layout,
                                               const TensorMap& map,
                                               const std::function<bool(const std::string&)>& ignorable);

  /// Values [first, first + out.size()) of the flat vector; in a transposed tensor each end must be one of a row (ends
  /// of parameters and chunks are). FailedPrecondition, naming the tensor, for NaN and infinity.
  absl::Status Read(int64_t first, absl::Span<float> out) const;

 private:
  struct Piece {
    std::string name;  // in the files
    const SafetensorsReader* file = nullptr;
    TensorSlice slice;
    FilePlace place;
    float subtracted = 0;  // ExternalTensor::subtracted
    std::string scales;    // ExternalTensor::scales
    const SafetensorsReader* scales_file = nullptr;
  };

  explicit SavedModelReader(ModelDirectory model) : model_(std::move(model)) {}

  static absl::Status ReadRows(const Piece& piece, int64_t first, absl::Span<float> out);
  static absl::Status ReadTransposed(const Piece& piece, int64_t first, absl::Span<float> out);
  static absl::Status ReadMxfp4(const Piece& piece, int64_t first, absl::Span<float> out);

  ModelDirectory model_;
  std::vector<Piece> pieces_;  // by offset, without gaps
};

}  // namespace holdfast
