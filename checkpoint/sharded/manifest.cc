#include "checkpoint/sharded/manifest.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/manifest_json.h"
#include "checkpoint/sharded/shard_index.h"
#include "checkpoint/sharded/shard_ranges.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr size_t kDigestDigits = 32;
constexpr int64_t kMaxRowElements = kMaxPieceBytes / sizeof(float);  // rows are not cut, and a vector is one row

// The text after the digested bytes. Its length is fixed and everything in it is known, so no byte of a manifest can
// change unnoticed.
std::string Tail(absl::string_view body) { return absl::StrCat(",\n  \"digest\": \"", DigestFile(body), "\"\n}\n"); }

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; });
}

bool IsDigest(absl::string_view digest) {
  return digest.size() == kDigestDigits && digest.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckPlaneNames(const std::vector<std::string>& planes) {
  if (planes.empty() || planes.size() > kMaxPlanes) return Invalid("planes: there are ", planes.size());
  if (planes[0] != kWeightPlane) return Invalid("planes: the first is ", planes[0], " instead of ", kWeightPlane);
  for (size_t i = 0; i < planes.size(); ++i) {
    if (!IsPlainName(planes[i])) return Invalid("planes: one cannot have this name");
    if (std::find(planes.begin(), planes.begin() + static_cast<std::ptrdiff_t>(i), planes[i]) !=
        planes.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Invalid("planes: ", planes[i], " occurs twice");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const StoredTensor& tensor) {
  RETURN_IF_ERROR(CheckTensorName(tensor.name));
  const bool ascii = std::all_of(tensor.name.begin(), tensor.name.end(), absl::ascii_isascii);
  if (!ascii) return Invalid("a name that is not ASCII");  // JSON would not always return it unchanged
  if (tensor.shape.empty()) return Invalid(tensor.name, ": no shape");
  int64_t elements = 1;
  for (const int64_t dim : tensor.shape) {
    if (dim < 1) return Invalid(tensor.name, ": a dimension of ", dim);
    if (dim > kMaxTensorElements / elements) return Invalid(tensor.name, ": shape is too large");
    elements *= dim;
  }
  if (tensor.cols() > kMaxRowElements) return Invalid(tensor.name, ": rows of ", tensor.cols(), " are too long");
  return Annotate(CheckPlaneNames(tensor.planes), tensor.name);
}

absl::Status CheckTensors(const std::vector<StoredTensor>& tensors) {
  if (tensors.empty() || tensors.size() > kMaxTensors) return Invalid("tensors: there are ", tensors.size());
  absl::flat_hash_set<absl::string_view> names;
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(Annotate(CheckTensor(tensors[i]), absl::StrCat("tensors[", i, "]")));
    if (!names.insert(tensors[i].name).second) return Invalid("tensors[", i, "]: ", tensors[i].name, " occurs twice");
    elements += tensors[i].rows() * tensors[i].cols();
    if (elements > kMaxTensorElements) return Invalid("tensors: too large all together");
  }
  return absl::OkStatus();
}

class FileChecker {
 public:
  absl::Status Check(const StoredFile& file, const std::string& field, uint64_t max_bytes) {
    if (!IsPlainName(file.name)) return Invalid(field, ": name is not one of a file in the checkpoint's directory");
    if (!names_.insert(file.name).second) return Invalid(field, ": ", file.name, " occurs twice");
    if (file.size > max_bytes) return Invalid(field, ": ", file.name, " of ", file.size, " bytes is too large");
    if (!IsDigest(file.digest)) return Invalid(field, ": ", file.name, ": digest is not 32 hexadecimal digits");
    return absl::OkStatus();
  }

 private:
  absl::flat_hash_set<absl::string_view> names_{kManifestName};
};

absl::Status CheckFiles(const Manifest& manifest) {
  const size_t count = manifest.shards.size();
  if (count < 1 || count > kMaxShards) return Invalid("shards: there are ", count);
  FileChecker files;
  for (size_t i = 0; i < count; ++i) {
    const StoredShard& shard = manifest.shards[i];
    const std::string field = absl::StrCat("shards[", i, "]");
    RETURN_IF_ERROR(files.Check(shard.data, field + ".data", kMaxFileBytes));
    RETURN_IF_ERROR(files.Check(shard.index, field + ".index", kMaxShardIndexBytes));
    if (shard.chunks < 0) return Invalid(field, ".chunks is negative");
  }
  return files.Check(manifest.model, "model", kMaxFileBytes);
}

}  // namespace

std::vector<StoredTensor> StoredTensorsOf(const ParameterLayout& layout) {
  std::vector<StoredTensor> tensors;
  for (const ParameterSpec& p : layout.parameters()) {
    StoredTensor& tensor = tensors.emplace_back();
    tensor.name = p.name;
    for (int i = 0; i < p.shape.rank(); ++i) tensor.shape.push_back(p.shape[i]);
  }
  return tensors;
}

std::vector<StoredTensor> StoredTensorsOf(const StateLayout& layout) {
  std::vector<StoredTensor> tensors = StoredTensorsOf(layout.parameters());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].planes.clear();
    for (const Plane& plane : layout.PlanesOf(static_cast<int>(i))) tensors[i].planes.push_back(plane.name);
  }
  return tensors;
}

std::vector<std::string> PlaneNames(const std::vector<StoredTensor>& tensors) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors) {
    for (const std::string& plane : tensor.planes) {
      if (std::find(names.begin(), names.end(), plane) == names.end()) names.push_back(plane);
    }
  }
  return names;
}

std::string CheckpointName::ToString() const { return absl::StrFormat("step-%010d-g%d", step, generation); }

std::optional<CheckpointName> CheckpointName::Parse(absl::string_view text) {
  CheckpointName name;
  absl::string_view rest = text;
  const size_t split = rest.rfind("-g");
  if (!absl::ConsumePrefix(&rest, "step-") || split == absl::string_view::npos || split < 5) return std::nullopt;
  if (!absl::SimpleAtoi(text.substr(5, split - 5), &name.step) || name.step < 0) return std::nullopt;
  if (!absl::SimpleAtoi(text.substr(split + 2), &name.generation)) return std::nullopt;
  if (name.ToString() != text) return std::nullopt;  // another way to write the same name
  return name;
}

int64_t StoredTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t StoredTensor::cols() const { return shape.empty() ? 1 : shape.back(); }

absl::Status CheckModel(const Manifest& manifest, const std::vector<StoredTensor>& expected) {
  const auto differs = [&](const std::string& how) {
    return Invalid(manifest.name.ToString(), " is not of this model: ", how);
  };
  const size_t count = std::min(expected.size(), manifest.tensors.size());
  for (size_t i = 0; i < count; ++i) {
    const StoredTensor& tensor = manifest.tensors[i];
    const StoredTensor& of_model = expected[i];
    if (tensor.name != of_model.name) {
      return differs(absl::StrCat("tensor ", i, " is ", tensor.name, ", the model's is ", of_model.name));
    }
    if (tensor.shape != of_model.shape) {
      return differs(absl::StrCat(tensor.name, " is [", absl::StrJoin(tensor.shape, ", "), "], the model's is [",
                                  absl::StrJoin(of_model.shape, ", "), "]"));
    }
  }
  if (expected.size() > count) return differs(absl::StrCat("it lacks ", expected[count].name));
  if (manifest.tensors.size() > count) return differs(absl::StrCat("the model lacks ", manifest.tensors[count].name));
  return absl::OkStatus();
}

absl::Status CheckPlanes(const Manifest& manifest, const std::vector<StoredTensor>& expected) {
  for (size_t i = 0; i < std::min(expected.size(), manifest.tensors.size()); ++i) {
    const std::vector<std::string>& planes = manifest.tensors[i].planes;
    if (planes == expected[i].planes) continue;
    return Invalid(manifest.name.ToString(), " is of another optimizer: of ", manifest.tensors[i].name, " it has ",
                   absl::StrJoin(planes, ", "), ", this run's optimizer keeps ",
                   absl::StrJoin(expected[i].planes, ", "));
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const Manifest& manifest) {
  if (manifest.name.step < 0) return Invalid("step is negative");
  if (manifest.samples < 0) return Invalid("samples is negative");
  if (manifest.world_size < 1) return Invalid("world_size is ", manifest.world_size);
  if (!std::isfinite(manifest.time)) return Invalid("time is not finite");
  RETURN_IF_ERROR(CheckTensors(manifest.tensors));
  return CheckFiles(manifest);
}

std::string FormatManifest(const Manifest& manifest) {
  std::string text = FormatManifestFields(manifest);
  return text += Tail(text);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  if (text.size() > kMaxManifestBytes) return Invalid("manifest of ", text.size(), " bytes is too large");
  const size_t tail = Tail("").size();
  if (text.size() < tail) return absl::DataLossError("the manifest ends too early");
  const absl::string_view body = text.substr(0, text.size() - tail);
  if (Tail(body) != text.substr(body.size()))
    return absl::DataLossError("the manifest's digest does not match its contents");
  Manifest manifest;
  RETURN_IF_ERROR(ParseManifestFields(absl::StrCat(body, "}"), &manifest));
  RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

}  // namespace holdfast
