#pragma once
// The manifest's fields, once, for who prints them and who parses them.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/sharded/manifest.h"

namespace holdfast {

struct Literal {  // a string that is always the same
  const char* text;
};
struct FormatVersion {};  // the newest is written, all are read
struct Hex {              // 16 hexadecimal digits in a string: JSON readers round large numbers
  uint64_t* value;
};
using Shape64 = std::vector<int64_t>;
using Names = std::vector<std::string>;

/// Where a field's value is kept, and so of which type it is.
using FieldTarget =
    std::variant<Literal, FormatVersion, Hex, std::string*, int64_t*, uint64_t*, double*, std::optional<double>*,
                 StoredFile*, Shape64*, Names*, std::vector<StoredTensor>*, std::vector<StoredShard>*>;

struct ManifestField {
  const char* key;
  FieldTarget target;
  uint64_t since = 1;  // the version that brought it
};
using ManifestFields = std::vector<ManifestField>;

inline constexpr char kManifestFormat[] = "holdfast checkpoint";
inline constexpr uint64_t kManifestVersion = 4;

inline ManifestFields FieldsOf(Manifest& m) {
  return {{"format", Literal{kManifestFormat}},
          {"version", FormatVersion{}},
          {"step", &m.name.step},
          {"generation", &m.name.generation},
          {"config", &m.config},
          {"config_digest", Hex{&m.config_digest}},
          {"data_digest", Hex{&m.data_digest}, 2},
          {"kernel_digest", Hex{&m.kernel_digest}, 3},
          {"build", &m.build, 3},
          {"samples", &m.samples},
          {"world_size", &m.world_size},
          {"sharding", &m.sharding},
          {"time", &m.time},
          {"validation_loss", &m.validation_loss},
          {"state_digest", Hex{&m.state_digest}},
          {"tensors", &m.tensors},
          {"shards", &m.shards},
          {"model", &m.model}};
}

inline ManifestFields FieldsOf(StoredFile& file) {
  return {{"name", &file.name}, {"size", &file.size}, {"digest", &file.digest}};
}

inline ManifestFields FieldsOf(StoredTensor& tensor) {
  return {{"name", &tensor.name}, {"shape", &tensor.shape}, {"planes", &tensor.planes, 4}};
}

inline ManifestFields FieldsOf(StoredShard& shard) {
  return {{"data", &shard.data}, {"index", &shard.index}, {"chunks", &shard.chunks}};
}

}  // namespace holdfast
