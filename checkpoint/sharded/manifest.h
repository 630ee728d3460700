#pragma once
// The manifest is the checkpoint: without a valid one there is none. JSON, written last, under a name that was never
// there before; its last field is the digest of all bytes before it. FORMAT.md has an example.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/nn/state_layout.h"

namespace holdfast {

/// A checkpoint is a directory of the storage: "step-0000001000-g7". Generations are never used twice, so neither are
/// these names.
struct CheckpointName {
  int64_t step = 0;
  uint64_t generation = 0;

  std::string ToString() const;
  /// The name whose ToString is `text`.
  static std::optional<CheckpointName> Parse(absl::string_view text);
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the comparison with 0 in it for one of pointers
  friend auto operator<=>(const CheckpointName&, const CheckpointName&) = default;
};

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kModelName[] = "model.h5";
inline constexpr char kImported[] = "imported";  // Manifest::sharding of a saved model that became a checkpoint

struct StoredFile {
  std::string name;    // in the checkpoint's directory
  uint64_t size = 0;   // bytes
  std::string digest;  // of its contents: XXH3-128, 32 hexadecimal digits
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

/// What one rank has written: its chunks (HDF5), and where in that file each of them lies and what its digest is.
struct StoredShard {
  StoredFile data, index;
  int64_t chunks = 0;
  friend bool operator==(const StoredShard&, const StoredShard&) = default;
};

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> planes = {"weight", "exp_avg", "exp_avg_sq"};  // of its state; always these before version 4

  /// Of the matrix with all but the last dimension flattened; a vector is one row. As Shape has them.
  int64_t rows() const;
  int64_t cols() const;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

/// The tensors of a checkpoint of such parameters, with no word of their planes; and of such a state.
std::vector<StoredTensor> StoredTensorsOf(const ParameterLayout& layout);
std::vector<StoredTensor> StoredTensorsOf(const StateLayout& layout);

/// Names of the planes that some tensor has, the weight's first.
std::vector<std::string> PlaneNames(const std::vector<StoredTensor>& tensors);

struct Manifest {
  CheckpointName name;
  std::string config;          // resolved, YAML
  uint64_t config_digest = 0;  // of what decides the bits of the run
  uint64_t data_digest = 0;    // of the token files; 0 = not known
  uint64_t kernel_digest = 0;  // of what the writer's kernels compute (framework/tensor/kernel_digest.h); 0 = not known
  std::string build = {};      // of the program that wrote it (framework/base/build.h); empty = not known
  int64_t samples = 0;         // of training data used up to here: the data position
  int64_t world_size = 0;
  std::string sharding;                   // how it was written, for people
  double time = 0;                        // seconds since the epoch
  std::optional<double> validation_loss;  // of this very step
  uint64_t state_digest = 0;
  std::vector<StoredTensor> tensors;  // canonical order
  std::vector<StoredShard> shards;
  StoredFile model;  // model.h5

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Limits, so that what others wrote cannot ask for more than there is.
inline constexpr uint64_t kMaxManifestBytes = 64ull << 20;
inline constexpr uint64_t kMaxFileBytes = 1ull << 50;
inline constexpr int64_t kMaxTensorElements = int64_t{1} << 48;
inline constexpr size_t kMaxTensors = 1 << 20;
inline constexpr size_t kMaxShards = 1 << 20;

std::string FormatManifest(const Manifest& manifest);
/// DataLoss if the digest does not fit; Unimplemented for a later version; InvalidArgument, naming the field, for
/// everything else: fields missing, unknown or in another order, names that leave the directory or occur twice, shapes
/// whose product overflows.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

/// InvalidArgument, naming the first tensor that differs, unless the checkpoint has tensors of the names and shapes of
/// `expected`.
absl::Status CheckModel(const Manifest& manifest, const std::vector<StoredTensor>& expected);

/// InvalidArgument, naming the first tensor that differs, unless the checkpoint's tensors have the planes that those of
/// the same number in `expected` have.
absl::Status CheckPlanes(const Manifest& manifest, const std::vector<StoredTensor>& expected);

/// What ParseManifest checks besides syntax. Writers ask before they write.
absl::Status CheckManifest(const Manifest& manifest);

}  // namespace holdfast
