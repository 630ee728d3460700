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

// Writes (cols, rows) of what is (rows, cols) here.
absl::Status AppendTransposed(const TensorSlice& slice, float subtracted, ValueReader values, std::vector<float>& block,
                              SafetensorsWriter& writer) {
  std::vector<float> tensor(static_cast<size_t>(slice.elements()));
  RETURN_IF_ERROR(values(slice.offset, absl::MakeSpan(tensor)));
  const int64_t rows_per_block = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(slice.rows, 1));
  for (int64_t first = 0; first < slice.cols; first += rows_per_block) {
    const int64_t count = std::min(rows_per_block, slice.cols - first);
    block.resize(static_cast<size_t>(count * slice.rows));
    Transpose(tensor.data() + first, slice.cols, slice.rows, count, block.data(), slice.rows);
    Subtract(subtracted, block);
    RETURN_IF_ERROR(writer.Append(block));
  }
  return absl::OkStatus();
}

/// A file of weights and its tensors.
struct WeightsFile {
  std::string name;
  std::vector<const ExternalTensor*> tensors;
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
  for (const ExternalTensor& tensor : map) {
    const uint64_t more = BytesOf(tensor, dtype);
    if (max_file_bytes > 0 && bytes > 0 && bytes + more > max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(&tensor);
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
    for (const ExternalTensor* tensor : file.tensors) {
      weight_map[tensor->name] = file.name;
      bytes += BytesOf(*tensor, dtype);
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
  for (const ExternalTensor* tensor : file.tensors) {
    entries.push_back(EntryOf(tensor->name, tensor->shape, DTypeOf(*tensor, dtype)));
  }
  // transformers asks files for the framework they were written for; "pt" is the one it loads everywhere.
  ASSIGN_OR_RETURN(auto writer,
                   SafetensorsWriter::Create((root / file.name).string(), std::move(entries), {{"format", "pt"}}));
  std::vector<float> block;
  for (const ExternalTensor* tensor : file.tensors) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, *tensor));
    RETURN_IF_ERROR(tensor->transposed ? AppendTransposed(slice, tensor->subtracted, values, block, *writer)
                                       : AppendRows(slice, tensor->subtracted, values, block, *writer));
  }
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
