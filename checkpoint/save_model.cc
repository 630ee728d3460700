#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/safetensors_json.h"
#include "checkpoint/saved_model.h"
#include "checkpoint/tensor_slices.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

absl::Status RemoveIfThere(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? ErrnoToStatus(error.value(), path.string()) : absl::OkStatus();
}

// Of an older model: one would be taken for the new one's.
absl::Status RemoveOtherTemplates(const fs::path& directory, const std::map<std::string, std::string>& others) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return absl::OkStatus();
  bool is_empty = true;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const bool is_other = entry.path().extension() == ".jinja" &&
                          !others.contains(fs::path(kChatTemplateDirectory) / entry.path().filename());
    if (is_other) RETURN_IF_ERROR(RemoveIfThere(entry.path()));
    is_empty &= is_other;
  }
  if (error) return ErrnoToStatus(error.value(), directory.string());
  return is_empty ? RemoveIfThere(directory) : absl::OkStatus();
}

// Of adapters; nothing of a tokenizer is read without its tokenizer.json.
absl::Status RemoveOtherTokenizer(const fs::path& root, const std::map<std::string, std::string>& others) {
  if (others.empty()) return RemoveIfThere(root / kTokenizerFile);
  for (const std::string name : kOtherFiles) {
    const bool is_adapter = name == kAdapterConfigFile || name == kAdapterWeightsFile;
    if (!is_adapter && !others.contains(name)) RETURN_IF_ERROR(RemoveIfThere(root / name));
  }
  return RemoveOtherTemplates(root / kChatTemplateDirectory, others);
}

// A file whose contents are on the disk, under a temporary name.
absl::StatusOr<std::unique_ptr<AtomicFile>> Stage(const fs::path& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path.string()));
  RETURN_IF_ERROR(file->Append(contents));
  RETURN_IF_ERROR(file->Sync());
  return file;
}

absl::StatusOr<std::vector<std::unique_ptr<AtomicFile>>> StageAll(const fs::path& root,
                                                                  const std::map<std::string, std::string>& files) {
  std::vector<std::unique_ptr<AtomicFile>> staged;
  for (const auto& [name, contents] : files) {
    if (name.starts_with(kChatTemplateDirectory)) RETURN_IF_ERROR(MakeDirectories(root / kChatTemplateDirectory));
    ASSIGN_OR_RETURN(staged.emplace_back(), Stage(root / name, contents));
  }
  return staged;
}

/// As the file holds them.
void Subtract(float subtracted, std::vector<float>& values) {
  if (subtracted == 0) return;
  for (float& value : values) value -= subtracted;
}

absl::Status AppendRows(const TensorSlice& slice, float subtracted, ValueReader values, std::vector<float>& block,
                        SafetensorsWriter& writer) {
  for (int64_t first = 0; first < slice.elements(); first += kBlockElements) {
    block.resize(static_cast<size_t>(std::min(kBlockElements, slice.elements() - first)));
    RETURN_IF_ERROR(values(slice.offset + first, absl::MakeSpan(block)));
    Subtract(subtracted, block);
    RETURN_IF_ERROR(writer.Append(block));
  }
  return absl::OkStatus();
}

/// A tensor of a file: what of the map has its name, in the order in which it lies there.
using FileTensor = std::vector<const ExternalTensor*>;

/// What is in a matrix of a transposed tensor.
struct MatrixPart {
  std::vector<float> values;  // (rows, cols)
  TensorSlice slice;
  int64_t column = 0, step = 1;  // of the first row, and from one to the next
};

// Writes one of the matrices (cols, rows of all parts) of what is (rows, cols) in each part here.
absl::Status AppendMatrix(const std::vector<MatrixPart>& parts, int64_t width, float subtracted,
                          std::vector<float>& block, SafetensorsWriter& writer) {
  const int64_t cols = parts.front().slice.cols, lines_per_block = std::max<int64_t>(1, kBlockElements / width);
  for (int64_t first = 0; first < cols; first += lines_per_block) {
    const int64_t count = std::min(lines_per_block, cols - first);
    block.resize(static_cast<size_t>(count * width));
    for (const MatrixPart& part : parts) {
      CopyMatrix({part.values.data() + first, cols}, part.slice.rows, count,
                 {block.data() + part.column, part.step, width});
    }
    Subtract(subtracted, block);
    RETURN_IF_ERROR(writer.Append(block));
  }
  return absl::OkStatus();
}

absl::Status AppendTransposed(const FileTensor& tensor, const ParameterLayout& layout, ValueReader values,
                              std::vector<float>& block, SafetensorsWriter& writer) {
  const int64_t width = tensor.front()->shape.cols();
  std::vector<MatrixPart> parts;
  for (size_t i = 0; i < tensor.size(); ++i) {
    const ExternalTensor& external = *tensor[i];
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, external));
    if (slice.elements() == 0) continue;
    MatrixPart& part = parts.emplace_back();
    part = {.values = std::vector<float>(static_cast<size_t>(slice.elements())),
            .slice = slice,
            .column = external.file_row % width,
            .step = external.row_step};
    RETURN_IF_ERROR(values(slice.offset, absl::MakeSpan(part.values)));
    if (i + 1 < tensor.size() && tensor[i + 1]->file_row / width == external.file_row / width) continue;
    RETURN_IF_ERROR(AppendMatrix(parts, width, external.subtracted, block, writer));
    parts.clear();
  }
  return absl::OkStatus();
}

absl::Status AppendTensor(const FileTensor& tensor, const ParameterLayout& layout, ValueReader values,
                          std::vector<float>& block, SafetensorsWriter& writer) {
  if (tensor.front()->transposed) return AppendTransposed(tensor, layout, values, block, writer);
  for (const ExternalTensor* part : tensor) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, *part));
    RETURN_IF_ERROR(AppendRows(slice, part->subtracted, values, block, writer));
  }
  return absl::OkStatus();
}

/// In the order in which the map first has them.
std::vector<FileTensor> FileTensors(const TensorMap& map) {
  std::vector<FileTensor> tensors;
  std::map<std::string, size_t> places;
  for (const ExternalTensor& tensor : map) {
    const auto [place, added] = places.emplace(tensor.name, tensors.size());
    if (added) tensors.emplace_back();
    tensors[place->second].push_back(&tensor);
  }
  for (FileTensor& tensor : tensors) {
    std::ranges::sort(tensor, {}, [](const ExternalTensor* part) { return part->file_row; });
  }
  return tensors;
}

/// A file of weights and its tensors.
struct WeightsFile {
  std::string name;
  std::vector<FileTensor> tensors;
};

/// Of a model that is stored in `dtype`.
FileDType DTypeOf(const ExternalTensor& tensor, FileDType dtype) { return tensor.fp32 ? FileDType::kF32 : dtype; }

uint64_t BytesOf(const ExternalTensor& tensor, FileDType dtype) {
  return static_cast<uint64_t>(tensor.shape.elements()) * (DTypeOf(tensor, dtype) == FileDType::kF32 ? 4 : 2);
}

// Named as transformers names shards.
std::vector<WeightsFile> PlanFiles(const TensorMap& map, FileDType dtype, uint64_t max_file_bytes) {
  std::vector<WeightsFile> files(1);
  uint64_t bytes = 0;
  for (FileTensor& tensor : FileTensors(map)) {
    const uint64_t more = BytesOf(*tensor.front(), dtype);
    if (max_file_bytes > 0 && bytes > 0 && bytes + more > max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(std::move(tensor));
    bytes += more;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name =
        files.size() == 1 ? kWeightsFile : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, files.size());
  }
  return files;
}

absl::StatusOr<std::string> IndexOf(const std::vector<WeightsFile>& files, FileDType dtype) {
  std::map<std::string, std::string> weight_map;
  uint64_t bytes = 0;
  for (const WeightsFile& file : files) {
    for (const FileTensor& tensor : file.tensors) {
      weight_map[tensor.front()->name] = file.name;
      bytes += BytesOf(*tensor.front(), dtype);
    }
  }
  return FormatWeightIndex(weight_map, bytes);
}

SafetensorsWriter::Entry EntryOf(const std::string& name, const Shape& shape, FileDType dtype) {
  SafetensorsWriter::Entry entry{name, dtype, {}};
  for (int i = 0; i < shape.rank(); ++i) entry.shape.push_back(shape[i]);
  return entry;
}

// All of a file of weights but its name.
absl::StatusOr<std::unique_ptr<SafetensorsWriter>> StageWeights(const fs::path& root, const WeightsFile& file,
                                                                const ParameterLayout& layout, ValueReader values,
                                                                FileDType dtype) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const FileTensor& tensor : file.tensors) {
    const ExternalTensor& first = *tensor.front();
    entries.push_back(EntryOf(first.name, first.shape, DTypeOf(first, dtype)));
  }
  // transformers asks files for the framework they were written for; "pt" is the one it loads everywhere.
  ASSIGN_OR_RETURN(auto writer,
                   SafetensorsWriter::Create((root / file.name).string(), std::move(entries), {{"format", "pt"}}));
  std::vector<float> block;
  for (const FileTensor& tensor : file.tensors) RETURN_IF_ERROR(AppendTensor(tensor, layout, values, block, *writer));
  RETURN_IF_ERROR(writer->Sync());
  return writer;
}

}  // namespace

absl::Status SaveModel(const std::string& directory, const ParameterLayout& layout, const TensorMap& map,
                       ValueReader values, FileDType dtype, const SavedModelFiles& files, uint64_t max_file_bytes) {
  RETURN_IF_ERROR(CheckCoverage(layout, map));
  RETURN_IF_ERROR(MakeDirectories(directory));
  const fs::path root(directory);

  ASSIGN_OR_RETURN(const auto config, Stage(root / kConfigFile, files.config_json));
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<AtomicFile>> others, StageAll(root, files.others));
  const std::vector<WeightsFile> weights_files = PlanFiles(map, dtype, max_file_bytes);
  const bool sharded = weights_files.size() > 1;
  if (sharded) {
    ASSIGN_OR_RETURN(const std::string index, IndexOf(weights_files, dtype));
    ASSIGN_OR_RETURN(others.emplace_back(), Stage(root / kWeightsIndexFile, index));
  }
  std::vector<std::unique_ptr<SafetensorsWriter>> weights;
  for (const WeightsFile& file : weights_files) {
    ASSIGN_OR_RETURN(weights.emplace_back(), StageWeights(root, file, layout, values, dtype));
  }

  if (files.may_replace != nullptr) RETURN_IF_ERROR(files.may_replace());
  for (const auto& file : weights) RETURN_IF_ERROR(file->Finish());
  RETURN_IF_ERROR(RemoveIfThere(root / (sharded ? kWeightsFile : kWeightsIndexFile)));
  for (const auto& file : others) RETURN_IF_ERROR(file->Commit());
  for (const char* name : kOtherFiles) {
    if (!files.others.contains(name)) RETURN_IF_ERROR(RemoveIfThere(root / name));
  }
  RETURN_IF_ERROR(RemoveOtherTemplates(root / kChatTemplateDirectory, files.others));
  return config->Commit();
}

absl::Status SaveAdapterFiles(const std::string& directory, const AdapterFiles& files, FileDType dtype) {
  if (HoldsConfigAndWeights(directory)) {
    return absl::AlreadyExistsError(absl::StrCat(directory, " holds a model: adapters need a directory of their own"));
  }
  RETURN_IF_ERROR(MakeDirectories(directory));
  const fs::path root(directory);
  ASSIGN_OR_RETURN(const auto config, Stage(root / kAdapterConfigFile, files.config_json));
  ASSIGN_OR_RETURN(const auto others, StageAll(root, files.others));
  std::vector<SafetensorsWriter::Entry> entries;
  for (const AdapterFiles::Tensor& tensor : files.tensors) entries.push_back(EntryOf(tensor.name, tensor.shape, dtype));
  ASSIGN_OR_RETURN(const auto weights, SafetensorsWriter::Create((root / kAdapterWeightsFile).string(),
                                                                 std::move(entries), files.metadata));
  std::vector<float> values;
  for (const AdapterFiles::Tensor& tensor : files.tensors) {
    values.resize(static_cast<size_t>(tensor.shape.elements()));
    RETURN_IF_ERROR(tensor.read(absl::MakeSpan(values)));
    RETURN_IF_ERROR(weights->Append(values));
  }
  RETURN_IF_ERROR(weights->Sync());
  if (files.may_replace != nullptr) RETURN_IF_ERROR(files.may_replace());
  RETURN_IF_ERROR(weights->Finish());
  for (const auto& file : others) RETURN_IF_ERROR(file->Commit());
  RETURN_IF_ERROR(RemoveOtherTokenizer(root, files.others));
  return config->Commit();
}

}  // namespace holdfast
