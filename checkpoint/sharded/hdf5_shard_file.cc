#include "checkpoint/sharded/hdf5_shard_file.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/hdf5_filter.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr uint32_t kSkipBothFilters = 3;  // bit k: filter k of the pipeline was not applied to this chunk

// Shuffle, then zstd. Optional: a library without it can still open the dataset, and read what is stored plain.
herr_t DeclareFilters(hid_t properties, int level) {
  const auto value = static_cast<unsigned>(level);
  if (H5Pset_shuffle(properties) < 0) return -1;
  return H5Pset_filter(properties, kZstdFilter, H5Z_FLAG_OPTIONAL, 1, &value);
}

absl::Status WriteAttribute(const Hdf5Lock& lock, hid_t object, const char* name, const Hdf5Space& space,
                            const int64_t* values) {
  const Hdf5Attribute attribute(H5Acreate2(object, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (attribute.valid() && H5Awrite(attribute.get(), H5T_NATIVE_INT64, values) >= 0) return absl::OkStatus();
  return lock.Error(absl::StrCat("attribute ", name));
}

absl::Status WriteNumber(const Hdf5Lock& lock, hid_t object, const char* name, int64_t value) {
  return WriteAttribute(lock, object, name, Hdf5Space(H5Screate(H5S_SCALAR)), &value);
}

absl::Status WriteList(const Hdf5Lock& lock, hid_t object, const char* name, absl::Span<const int64_t> values) {
  const hsize_t count = values.size();
  return WriteAttribute(lock, object, name, Hdf5Space(H5Screate_simple(1, &count, nullptr)), values.data());
}

}  // namespace

absl::Status WriteCheckpointAttributes(const Hdf5Lock& lock, hid_t file, const CheckpointName& checkpoint) {
  RETURN_IF_ERROR(WriteNumber(lock, file, "holdfast_format_version", kFormatVersion));
  RETURN_IF_ERROR(WriteNumber(lock, file, "step", checkpoint.step));
  return WriteNumber(lock, file, "generation", static_cast<int64_t>(checkpoint.generation));
}

Hdf5ShardFile::Hdf5ShardFile(ShardFileHeader header, std::vector<StoredTensor> tensors, std::vector<StoredChunk> chunks)
    : header_(header),
      tensors_(std::move(tensors)),
      chunks_(std::move(chunks)),
      ranges_(PlanRanges(chunks_)),
      open_(ranges_.size()) {
  for (size_t r = 0; r < ranges_.size(); ++r) {
    range_of_chunk_.insert(range_of_chunk_.end(), ranges_[r].count, r);
    open_[r].chunks_left = ranges_[r].count;
  }
}

Hdf5ShardFile::~Hdf5ShardFile() { Close().IgnoreError(); }

absl::StatusOr<std::unique_ptr<Hdf5ShardFile>> Hdf5ShardFile::Create(const std::string& path,
                                                                     const ShardFileHeader& header,
                                                                     std::vector<StoredTensor> tensors,
                                                                     std::vector<StoredChunk> chunks) {
  std::unique_ptr<Hdf5ShardFile> file(new Hdf5ShardFile(header, std::move(tensors), std::move(chunks)));
  ASSIGN_OR_RETURN(file->sink_, Hdf5Sink::Open(path));
  const Hdf5Lock lock;
  ASSIGN_OR_RETURN(file->file_, file->sink_->CreateFile(lock));
  RETURN_IF_ERROR(file->WriteHeader(lock));
  return file;
}

absl::Status Hdf5ShardFile::WriteHeader(const Hdf5Lock& lock) {
  RETURN_IF_ERROR(WriteCheckpointAttributes(lock, file_.get(), header_.checkpoint));
  RETURN_IF_ERROR(WriteNumber(lock, file_.get(), "shard", header_.shard));
  RETURN_IF_ERROR(WriteNumber(lock, file_.get(), "num_shards", header_.num_shards));
  for (const std::string& plane : PlaneNames(tensors_)) {
    ASSIGN_OR_RETURN(groups_[plane], CreateGroup(lock, file_.get(), plane));
  }
  return sink_->status();
}

absl::StatusOr<Hdf5Dataset> Hdf5ShardFile::CreateDataset(const Hdf5Lock& lock, const ShardRange& range, hid_t group) {
  const StoredTensor& tensor = tensors_[static_cast<size_t>(range.tensor)];
  const std::string name = DatasetName(tensor.name, range);
  const auto cols = static_cast<hsize_t>(tensor.cols());
  const hsize_t sizes[] = {static_cast<hsize_t>(range.rows), cols};
  const hsize_t chunk_sizes[] = {static_cast<hsize_t>(range.chunk_rows), cols};
  const int rank = tensor.shape.size() > 1 ? 2 : 1;  // a vector has one row: its columns are its elements
  const Hdf5Space space(H5Screate_simple(rank, sizes + 2 - rank, nullptr));
  const Hdf5Properties properties = TimelessProperties(H5P_DATASET_CREATE), access(H5Pcreate(H5P_DATASET_ACCESS));
  if (!space.valid() || !properties.valid() || !access.valid() ||
      H5Pset_chunk(properties.get(), rank, chunk_sizes + 2 - rank) < 0 ||
      H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) < 0 || H5Pset_chunk_cache(access.get(), 1, 0, 1) < 0 ||
      (header_.compressed && DeclareFilters(properties.get(), header_.level) < 0)) {
    return lock.Error(absl::StrCat("properties of dataset ", name));
  }
  Hdf5Dataset dataset(
      H5Dcreate2(group, name.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, properties.get(), access.get()));
  if (!dataset.valid()) return lock.Error(absl::StrCat("dataset ", name));
  RETURN_IF_ERROR(WriteNumber(lock, dataset.get(), "first_row", range.first_row));
  RETURN_IF_ERROR(WriteList(lock, dataset.get(), "shape", tensor.shape));
  return dataset;
}

absl::Status Hdf5ShardFile::CreateDatasets(const Hdf5Lock& lock, size_t range) {
  for (const std::string& plane : tensors_[static_cast<size_t>(ranges_[range].tensor)].planes) {
    ASSIGN_OR_RETURN(Hdf5Dataset dataset, CreateDataset(lock, ranges_[range], groups_.at(plane).get()));
    open_[range].datasets.push_back(std::move(dataset));
  }
  return absl::OkStatus();
}

absl::Status Hdf5ShardFile::WritePiece(const Hdf5Lock& lock, size_t chunk, size_t plane, const EncodedPiece& piece) {
  const size_t r = range_of_chunk_[chunk];
  const hsize_t at[] = {static_cast<hsize_t>(chunks_[chunk].first_row - ranges_[r].first_row), 0};
  const uint32_t mask = header_.compressed && !piece.compressed ? kSkipBothFilters : 0;
  if (H5Dwrite_chunk(open_[r].datasets[plane].get(), H5P_DEFAULT, mask, at, piece.bytes.size(), piece.bytes.data()) <
      0) {
    return lock.Error(absl::StrCat("writing rows of ", tensors_[static_cast<size_t>(ranges_[r].tensor)].name));
  }
  RETURN_IF_ERROR(sink_->status());
  if (sink_->last_size() != piece.bytes.size()) {
    return absl::InternalError("HDF5 did not write a chunk in one piece");
  }
  chunks_[chunk].pieces[plane] = {
      .offset = sink_->last_offset(), .size = piece.bytes.size(), .compressed = piece.compressed};
  return absl::OkStatus();
}

absl::Status Hdf5ShardFile::WriteChunk(size_t chunk, const EncodedPieces& pieces) {
  const Hdf5Lock lock;
  const size_t r = range_of_chunk_[chunk];
  OpenRange& open = open_[r];
  if (open.chunks_left == ranges_[r].count) RETURN_IF_ERROR(CreateDatasets(lock, r));
  for (size_t k = 0; k < pieces.size(); ++k) RETURN_IF_ERROR(WritePiece(lock, chunk, k, pieces[k]));
  if (--open.chunks_left > 0) return absl::OkStatus();
  for (Hdf5Dataset& dataset : open.datasets) {
    if (dataset.Reset() < 0) return lock.Error("closing a dataset");
  }
  return sink_->status();
}

absl::Status Hdf5ShardFile::Close() {
  if (sink_ == nullptr) return absl::OkStatus();
  absl::Status status;
  {
    const Hdf5Lock lock;
    open_.clear();
    groups_.clear();
    if (file_.Reset() < 0) status = lock.Error("closing the file");
  }
  const absl::Status io = sink_->Finish();
  return io.ok() ? status : io;
}

}  // namespace holdfast
