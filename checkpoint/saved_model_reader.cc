#include "checkpoint/saved_model_reader.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/problems.h"
#include "checkpoint/safetensors_header.h"
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

/// Whether each duplicate that is there has the values of its tensor.
absl::Status CheckDuplicates(const std::string& directory, const ModelDirectory& model, const TensorMap& map) {
  std::vector<float> values, duplicates;
  for (const ExternalTensor& tensor : map) {
    const SafetensorsEntry* entry = tensor.duplicate.empty() ? nullptr : model.Find(tensor.duplicate);
    if (entry == nullptr) continue;
    bool same = entry->shape == model.Find(tensor.name)->shape;
    for (int64_t first = 0; same && first < tensor.shape.elements(); first += kBlockElements) {
      values.resize(static_cast<size_t>(std::min(kBlockElements, tensor.shape.elements() - first)));
      duplicates.resize(values.size());
      RETURN_IF_ERROR(model.tensors().at(tensor.name)->Read(tensor.name, first, absl::MakeSpan(values)));
      RETURN_IF_ERROR(model.tensors().at(tensor.duplicate)->Read(tensor.duplicate, first, absl::MakeSpan(duplicates)));
      same = values == duplicates;
    }
    if (same) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": tensor ", Quoted(tensor.duplicate), " differs from ", Quoted(tensor.name),
        ", but the model has one parameter for both; its config must not tie the embeddings (tie_word_embeddings)"));
  }
  return absl::OkStatus();
}

/// The map with each tensor where the files have it.
TensorMap Located(TensorMap map, const ModelDirectory& model) {
  for (ExternalTensor& tensor : map) {
    if (model.Find(tensor.name) != nullptr) continue;
    const auto found = std::find_if(tensor.others.begin(), tensor.others.end(),
                                    [&](const ExternalRows& rows) { return model.Find(rows.name) != nullptr; });
    if (found == tensor.others.end()) continue;
    tensor.name = found->name;
    tensor.file_row = found->first_row;
    tensor.shape = found->shape;
  }
  return map;
}

}  // namespace

absl::StatusOr<SavedModelReader> SavedModelReader::Open(const std::string& directory, const ParameterLayout& layout,
                                                        const TensorMap& map,
                                                        const std::function<bool(const std::string&)>& ignorable) {
  RETURN_IF_ERROR(CheckCoverage(layout, map));
  ASSIGN_OR_RETURN(ModelDirectory model, ModelDirectory::Open(directory));
  const TensorMap tensors = Located(map, model);
  RETURN_IF_ERROR(CheckTensors(directory, model, tensors, ignorable));
  RETURN_IF_ERROR(CheckDuplicates(directory, model, tensors));
  SavedModelReader reader(std::move(model));
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, map[i]));
    if (slice.elements() == 0) continue;
    const ExternalTensor& tensor = tensors[i];
    const SafetensorsReader* file = reader.model_.tensors().at(tensor.name);
    reader.pieces_.push_back(
        {tensor.name, file, slice, tensor.file_row * slice.cols, tensor.transposed, tensor.subtracted});
  }
  std::sort(reader.pieces_.begin(), reader.pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.slice.offset < b.slice.offset; });
  return reader;
}

absl::Status SavedModelReader::Read(int64_t first, absl::Span<float> out) const {
  auto next = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                               [](int64_t at, const Piece& piece) { return at < piece.slice.offset; });
  while (!out.empty()) {
    HOLDFAST_CHECK(next != pieces_.begin());
    const Piece& piece = *(next - 1);
    const int64_t inside = first - piece.slice.offset;
    HOLDFAST_CHECK(inside < piece.slice.elements());
    const int64_t count = std::min(static_cast<int64_t>(out.size()), piece.slice.elements() - inside);
    const auto part = out.first(static_cast<size_t>(count));
    RETURN_IF_ERROR(piece.transposed ? ReadTransposed(piece, inside, part) : ReadRows(piece, inside, part));
    if (piece.subtracted != 0) {
      for (float& value : part) value += piece.subtracted;
    }
    first += count;
    out.remove_prefix(static_cast<size_t>(count));
    ++next;
  }
  return absl::OkStatus();
}

absl::Status SavedModelReader::ReadRows(const Piece& piece, int64_t first, absl::Span<float> out) {
  return piece.file->Read(piece.name, piece.file_offset + first, out);
}

// The file holds (cols, rows) of what is (rows, cols) here.
absl::Status SavedModelReader::ReadTransposed(const Piece& piece, int64_t first, absl::Span<float> out) {
  const int64_t cols = piece.slice.cols, first_row = first / cols, rows = static_cast<int64_t>(out.size()) / cols;
  HOLDFAST_CHECK(first % cols == 0 && rows * cols == static_cast<int64_t>(out.size()));
  const int64_t cols_per_block = std::max<int64_t>(1, kBlockElements / rows);
  std::vector<float> block(static_cast<size_t>(std::min(cols_per_block, cols) * rows));
  for (int64_t col = 0; col < cols; col += cols_per_block) {
    const int64_t count = std::min(cols_per_block, cols - col);
    const int64_t runs = rows == piece.slice.rows ? 1 : count;  // whole columns lie one after the other
    const int64_t run = rows * count / runs;
    for (int64_t r = 0; r < runs; ++r) {
      const auto line = absl::MakeSpan(block).subspan(static_cast<size_t>(r * run), static_cast<size_t>(run));
      RETURN_IF_ERROR(piece.file->Read(piece.name, (col + r) * piece.slice.rows + first_row, line));
    }
    Transpose(block.data(), rows, count, rows, out.data() + col, cols);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
