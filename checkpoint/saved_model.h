#pragma once
// A saved model: a directory with model.safetensors (or the shards named by model.safetensors.index.json), config.json
// and what belongs to its tokenizer, as Hugging Face lays it out. Here the flat vector of a ParameterLayout is written
// to such a directory, which SavedModelReader reads; which external name is which parameter comes from a TensorMap.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

/// What a saved model directory will hold besides its weights.
struct SavedModelFiles {
  std::string config_json;
  std::map<std::string, std::string> others;  // name -> contents, of kOtherFiles (model_directory.h) and templates in
                                              // kChatTemplateDirectory
  std::function<absl::Status()> may_replace = nullptr;  // asked when all is on the disk, before any name changes
};

/// Copies values [first, first + out.size()) of the flat vector (fp32, canonical order) to `out`.
using ValueReader = absl::FunctionRef<absl::Status(int64_t first, absl::Span<float> out)>;

/// Writes weights (stored as `dtype`; in memory at most one transposed matrix at a time) and files to `directory`,
/// created if needed, in files of at most `max_file_bytes` each (more, if a tensor alone has more) with an index if
/// there are several; 0 = in one. Every file by temporary + fsync + rename. An existing saved model is replaced file by
/// file, config.json last; no name changes before everything is on the disk, so a full one leaves the old model as it
/// was. An index of shards, those of kOtherFiles and templates that the new model does not have are removed.
absl::Status SaveModel(const std::string& directory, const ParameterLayout& layout, const TensorMap& map,
                       ValueReader values, FileDType dtype, const SavedModelFiles& files, uint64_t max_file_bytes = 0);

/// What a directory of adapters holds.
struct AdapterFiles {
  struct Tensor {
    std::string name;
    Shape shape;
    std::function<absl::Status(absl::Span<float> out)> read;  // all of it
  };
  std::string config_json;
  std::map<std::string, std::string> metadata;  // of the file of weights
  std::vector<Tensor> tensors = {};
  std::map<std::string, std::string> others = {};       // as in SavedModelFiles, of a tokenizer; or empty
  std::function<absl::Status()> may_replace = nullptr;  // as there
};

/// Writes adapters in PEFT's form (in memory one tensor at a time), otherwise as SaveModel does. A tokenizer.json that
/// was there for others goes, as it would be taken for theirs. AlreadyExists where a model lies: who reads both cannot
/// tell which of the two is meant.
absl::Status SaveAdapterFiles(const std::string& directory, const AdapterFiles& files, FileDType dtype);

}  // namespace holdfast
