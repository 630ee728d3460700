#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/problems.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/saved_model.h"
#include "checkpoint/tensor_slices.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

std::string Describe(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

void CheckTensor(const ModelDirectory& model, const ExternalTensor& tensor, Problems& problems) {
  const SafetensorsEntry* entry = model.Find(tensor.name);
  const std::string name = absl::StrCat("tensor ", Quoted(tensor.name));
  if (entry == nullptr) {
    problems.Add(absl::StrCat(name, " is missing"));
  } else if (entry->dtype == FileDType::kOther) {
    problems.Add(absl::StrCat(name, " has dtype ", Quoted(entry->dtype_name), "; F32, F16 and BF16 can be read"));
  } else {
    std::vector<int64_t> expected;
    for (int i = 0; i < tensor.shape.rank(); ++i) expected.push_back(tensor.shape[i]);
    if (entry->shape == expected) return;
    problems.Add(absl::StrCat(name, " has shape ", Describe(entry->shape), "; expected ", Describe(expected)));
  }
}

absl::Status CheckTensors(const std::string& directory, const ModelDirectory& model, const TensorMap& map,
                          const std::function<bool(const std::string&)>& ignorable) {
  Problems problems;
  std::set<std::string> known;
  for (const ExternalTensor& tensor : map) {
    known.insert(tensor.name);
    CheckTensor(model, tensor, problems);
  }
  for (const auto& [name, file] : model.tensors()) {
    if (known.contains(name) || (ignorable && ignorable(name))) continue;
    problems.Add(absl::StrCat("tensor ", Quoted(name), " is unexpected: the model has no such parameter"));
  }
  return problems.ToStatus(absl::StrCat(directory, ": the weights do not fit the model"));
}

/// The map with each tensor under the name the files know it by.
TensorMap ResolveAliases(TensorMap map, const ModelDirectory& model) {
  for (ExternalTensor& tensor : map) {
    if (model.Find(tensor.name) == nullptr && model.Find(tensor.alias) != nullptr) tensor.name = tensor.alias;
  }
  return map;
}

// The file holds (cols, rows) of what is (rows, cols) here.
absl::Status ReadTransposed(const SafetensorsReader& file, const std::string& name, const TensorSlice& slice,
                            std::vector<float>& block, absl::Span<float> values) {
  const int64_t rows_per_block = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(slice.rows, 1));
  for (int64_t first = 0; first < slice.cols; first += rows_per_block) {
    const int64_t count = std::min(rows_per_block, slice.cols - first);
    block.resize(static_cast<size_t>(count * slice.rows));
    HF_RETURN_IF_ERROR(file.Read(name, first * slice.rows, absl::MakeSpan(block)));
    Transpose(block.data(), slice.rows, count, slice.rows, values.data() + slice.offset + first, slice.cols);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadWeights(const std::string& directory, const ParameterLayout& layout, const TensorMap& map,
                         const std::function<bool(const std::string&)>& ignorable, absl::Span<float> values) {
  HF_CHECK(static_cast<int64_t>(values.size()) == layout.elements());
  HF_RETURN_IF_ERROR(CheckCoverage(layout, map));
  HF_ASSIGN_OR_RETURN(const ModelDirectory model, ModelDirectory::Open(directory));
  const TensorMap tensors = ResolveAliases(map, model);
  HF_RETURN_IF_ERROR(CheckTensors(directory, model, tensors, ignorable));
  std::vector<float> block;
  for (const ExternalTensor& tensor : tensors) {
    HF_ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, tensor));
    const SafetensorsReader& file = *model.tensors().at(tensor.name);
    HF_RETURN_IF_ERROR(tensor.transposed ? ReadTransposed(file, tensor.name, slice, block, values)
                                         : file.Read(tensor.name, 0,
                                                     values.subspan(static_cast<size_t>(slice.offset),
                                                                    static_cast<size_t>(slice.elements()))));
  }
  return absl::OkStatus();
}

}  // namespace holdfast
