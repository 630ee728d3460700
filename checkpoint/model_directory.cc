#include "checkpoint/model_directory.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/problems.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/safetensors_json.h"
#include "framework/base/files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

// An index is untrusted input: it may name files of its own directory and no others. A link in the directory
// may lead to the blobs of the cache that the directory is a snapshot of (<repo>/snapshots/<revision> and
// <repo>/blobs), as Hugging Face lays it out.
absl::StatusOr<std::string> ShardPath(const std::string& directory, const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the index names ", Quoted(name), ", which is no file name"));
  }
  std::error_code error;
  const fs::path root = fs::canonical(directory, error);
  if (error) return ErrnoToStatus(error.value(), directory);
  const fs::path file = fs::canonical(root / name, error);
  if (error) return ErrnoToStatus(error.value(), (root / name).string());
  const bool inside = file.parent_path() == root;
  const bool in_cache =
      root.parent_path().filename() == "snapshots" && file.parent_path() == root.parent_path().parent_path() / "blobs";
  if (inside || in_cache) return file.string();
  return absl::InvalidArgumentError(
      absl::StrCat("the index names ", Quoted(name), ", a link to ", file.string(), " outside of the directory"));
}

}  // namespace

bool HoldsConfigAndWeights(const std::string& directory) {
  const auto has = [root = fs::path(directory)](const char* name) {
    std::error_code ignored;
    return fs::exists(root / name, ignored);
  };
  return has(kConfigFile) && (has(kWeightsFile) || has(kWeightsIndexFile));
}

absl::StatusOr<ModelDirectory> ModelDirectory::Open(const std::string& directory) {
  ModelDirectory model;
  const fs::path root(directory);
  std::error_code ignored;
  if (!fs::exists(root / kWeightsFile, ignored)) {
    RETURN_IF_ERROR(model.OpenShards(directory));
    return model;
  }
  ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open((root / kWeightsFile).string()));
  for (const auto& [name, entry] : reader->entries()) model.tensors_[name] = reader.get();
  model.files_.push_back(std::move(reader));
  return model;
}

const SafetensorsEntry* ModelDirectory::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second->entries().at(name);
}

absl::Status ModelDirectory::OpenShards(const std::string& directory) {
  const std::string index_path = (fs::path(directory) / kWeightsIndexFile).string();
  const auto json = ReadFile(index_path, kMaxHeaderBytes);
  if (absl::IsNotFound(json.status())) {
    for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (std::error_code error; !fs::exists(fs::path(directory) / pickle, error)) continue;
      return absl::InvalidArgumentError(absl::StrCat(directory, ": its weights are in a ", pickle,
                                                     ", which is not read: `save_pretrained` of ",
                                                     "transformers writes them as safetensors"));
    }
    return absl::NotFoundError(
        absl::StrCat(directory, ": neither ", kWeightsFile, " nor ", kWeightsIndexFile, " is there"));
  }
  RETURN_IF_ERROR(json.status());
  const auto weight_map = ParseWeightMap(*json);
  if (!weight_map.ok()) return Annotate(weight_map.status(), index_path);

  std::map<std::string, const SafetensorsReader*> shards;
  for (const auto& [tensor, name] : *weight_map) {
    if (shards.contains(name)) continue;
    const auto path = ShardPath(directory, name);
    if (!path.ok()) return Annotate(path.status(), index_path);
    ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open(*path));
    shards[name] = reader.get();
    files_.push_back(std::move(reader));
  }
  return Annotate(CheckIndex(*weight_map, shards), index_path);
}

absl::Status ModelDirectory::CheckIndex(const std::map<std::string, std::string>& weight_map,
                                        const std::map<std::string, const SafetensorsReader*>& shards) {
  Problems problems;
  for (const auto& [tensor, file] : weight_map) {
    if (shards.at(file)->entries().contains(tensor)) {
      tensors_[tensor] = shards.at(file);
    } else {
      problems.Add(absl::StrCat("tensor ", Quoted(tensor), " is not in ", Quoted(file)));
    }
  }
  for (const auto& [file, reader] : shards) {
    for (const auto& [tensor, entry] : reader->entries()) {
      const auto it = weight_map.find(tensor);
      if (it == weight_map.end() || it->second != file) {
        problems.Add(absl::StrCat("tensor ", Quoted(tensor), " of ", Quoted(file), " is not listed there"));
      }
    }
  }
  return problems.ToStatus("index and shards do not match");
}

}  // namespace holdfast
