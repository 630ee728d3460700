#include "checkpoint/sharded/model_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/sharded/hdf5_driver.h"
#include "checkpoint/sharded/hdf5_library.h"
#include "checkpoint/sharded/hdf5_shard_file.h"
#include "checkpoint/sharded/shard_ranges.h"
#include "checkpoint/sharded/shard_read_back.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// A range and the shard it is in.
struct Source {
  size_t shard = 0;
  ShardRange range;
};

/// Rows [first_row, first_row + rows) of a tensor as a block of its space: whole dimensions but for one.
struct Block {
  int64_t rows = 0;
  std::vector<hsize_t> start, count;
};

// Rows count through all dimensions but the last, so a range of them may end inside each: it is cut where a block of an
// outer dimension begins or ends. At most two blocks per dimension.
Block FirstBlock(absl::Span<const int64_t> shape, int64_t first_row, int64_t rows) {
  Block block{.rows = 1, .start = {}, .count = {}};
  block.start.assign(shape.size(), 0);
  block.count.assign(shape.size(), 1);
  if (shape.empty()) return block;
  block.count.back() = static_cast<hsize_t>(shape.back());
  bool whole = true;  // the dimensions inside this one are taken whole
  int64_t position = first_row;
  for (size_t d = shape.size() - 1; d-- > 0;) {
    const int64_t at = position % shape[d];
    position /= shape[d];
    block.start[d] = static_cast<hsize_t>(at);
    if (!whole) continue;
    const int64_t taken = std::min(shape[d] - at, rows / block.rows);
    block.count[d] = static_cast<hsize_t>(taken);
    block.rows *= taken;
    whole = taken == shape[d];
  }
  return block;
}

// Printf-like patterns in the names of sources are not wanted.
std::string Escape(const std::string& name) { return absl::StrReplaceAll(name, {{"%", "%%"}}); }

class ModelFile {
 public:
  ModelFile(const Manifest& manifest, const std::vector<std::vector<StoredChunk>>& indexes) : manifest_(manifest) {
    sources_.resize(manifest.tensors.size());
    for (size_t s = 0; s < indexes.size(); ++s) {
      for (const ShardRange& range : PlanRanges(indexes[s])) {
        sources_[static_cast<size_t>(range.tensor)].push_back({.shard = s, .range = range});
      }
    }
  }

  absl::Status Write(const std::string& path, Hdf5Sink* sink) {
    const Hdf5Lock lock;
    ASSIGN_OR_RETURN(Hdf5File file, sink->CreateFile(lock));
    RETURN_IF_ERROR(WriteCheckpointAttributes(lock, file.get(), manifest_.name));
    for (const std::string& plane : PlaneNames(manifest_.tensors)) {
      RETURN_IF_ERROR(WritePlane(lock, file.get(), plane));
    }
    if (file.Reset() < 0) return lock.Error(absl::StrCat(path, ": closing"));
    return sink->Finish();
  }

 private:
  absl::Status WritePlane(const Hdf5Lock& lock, hid_t file, const std::string& plane) {
    ASSIGN_OR_RETURN(const Hdf5Group group, CreateGroup(lock, file, plane));
    for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
      const std::vector<std::string>& planes = manifest_.tensors[t].planes;
      if (std::find(planes.begin(), planes.end(), plane) == planes.end()) continue;
      RETURN_IF_ERROR(Annotate(WriteTensor(lock, group.get(), plane, t), manifest_.tensors[t].name));
    }
    return absl::OkStatus();
  }

  absl::Status WriteTensor(const Hdf5Lock& lock, hid_t group, const std::string& plane, size_t t) {
    const StoredTensor& tensor = manifest_.tensors[t];
    const std::vector<hsize_t> sizes(tensor.shape.begin(), tensor.shape.end());
    const Hdf5Space space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
    const Hdf5Properties properties = TimelessProperties(H5P_DATASET_CREATE);
    constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
    if (!space.valid() || !properties.valid() || H5Pset_layout(properties.get(), H5D_VIRTUAL) < 0 ||
        H5Pset_fill_value(properties.get(), H5T_NATIVE_FLOAT, &kMissing) < 0) {
      return lock.Error("a virtual dataset");
    }
    for (const Source& source : sources_[t]) {
      RETURN_IF_ERROR(Map(lock, properties.get(), space.get(), plane, tensor, source));
    }
    const Hdf5Dataset dataset(H5Dcreate2(group, tensor.name.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                         properties.get(), H5P_DEFAULT));
    return dataset.valid() ? absl::OkStatus() : lock.Error("a virtual dataset");
  }

  absl::Status Map(const Hdf5Lock& lock, hid_t properties, hid_t space, const std::string& plane,
                   const StoredTensor& tensor, const Source& source) {
    const std::string file = Escape(manifest_.shards[source.shard].data.name);
    const std::string dataset = Escape(absl::StrCat("/", plane, "/", DatasetName(tensor.name, source.range)));
    const std::array<hsize_t, 2> sizes{static_cast<hsize_t>(source.range.rows), static_cast<hsize_t>(tensor.cols())};
    const int rank = tensor.shape.size() > 1 ? 2 : 1;
    const Hdf5Space stored(H5Screate_simple(rank, sizes.data() + 2 - rank, nullptr));
    if (!stored.valid()) return lock.Error("a source");
    for (int64_t done = 0; done < source.range.rows;) {
      const Block block = FirstBlock(tensor.shape, source.range.first_row + done, source.range.rows - done);
      const std::array<hsize_t, 2> start{static_cast<hsize_t>(done), 0};
      const std::array<hsize_t, 2> count{static_cast<hsize_t>(block.rows), sizes[1]};
      if (H5Sselect_hyperslab(space, H5S_SELECT_SET, block.start.data(), nullptr, block.count.data(), nullptr) < 0 ||
          H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, start.data() + 2 - rank, nullptr, count.data() + 2 - rank,
                              nullptr) < 0 ||
          H5Pset_virtual(properties, space, file.c_str(), dataset.c_str(), stored.get()) < 0) {
        return lock.Error(absl::StrCat("mapping ", dataset, " of ", file));
      }
      done += block.rows;
    }
    return absl::OkStatus();
  }

  const Manifest& manifest_;
  std::vector<std::vector<Source>> sources_;  // by tensor
};

// What would lead outside of a tensor or a list. Indexes and manifest come from files.
absl::Status CheckInputs(const Manifest& manifest, const std::vector<std::vector<StoredChunk>>& indexes) {
  if (indexes.size() != manifest.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat(indexes.size(), " indexes for ", manifest.shards.size(), " shards"));
  }
  for (const StoredTensor& tensor : manifest.tensors) RETURN_IF_ERROR(CheckTensorName(tensor.name));
  for (const std::vector<StoredChunk>& index : indexes) {
    for (const StoredChunk& chunk : index) {
      const bool known = chunk.tensor >= 0 && static_cast<size_t>(chunk.tensor) < manifest.tensors.size();
      if (!known) return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", chunk.tensor));
      const StoredTensor& tensor = manifest.tensors[static_cast<size_t>(chunk.tensor)];
      const int64_t rows = tensor.rows();
      if (chunk.rows < 1 || chunk.first_row < 0 || chunk.rows > rows || chunk.first_row > rows - chunk.rows) {
        return absl::InvalidArgumentError(absl::StrCat(tensor.name, " has only ", rows, " rows"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredFile> WriteModelFile(Storage& storage, const Manifest& manifest,
                                          const std::vector<std::vector<StoredChunk>>& indexes) {
  constexpr uint64_t kPerFile = 2 << 20, kPerDataset = 1024, kPerRange = 512;
  RETURN_IF_ERROR(CheckInputs(manifest, indexes));
  uint64_t bytes = kPerFile;
  for (const StoredTensor& tensor : manifest.tensors) bytes += tensor.planes.size() * kPerDataset;
  for (const std::vector<StoredChunk>& index : indexes) {
    for (const ShardRange& range : PlanRanges(index)) bytes += index[range.first_chunk].pieces.size() * kPerRange;
  }
  const std::string name = absl::StrCat(manifest.name.ToString(), "/", kModelName);
  ASSIGN_OR_RETURN(const std::unique_ptr<StagedFile> staged, storage.Stage(name, bytes));
  FileContents contents;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<Hdf5Sink> sink, Hdf5Sink::Open(staged->path()));
    RETURN_IF_ERROR(ModelFile(manifest, indexes).Write(staged->path(), sink.get()));
    ASSIGN_OR_RETURN(contents, ReadBack(sink->fd(), {}));
  }
  RETURN_IF_ERROR(staged->Commit());
  return StoredFile{.name = kModelName, .size = contents.size, .digest = contents.digest};
}

}  // namespace holdfast
