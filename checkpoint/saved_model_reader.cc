#include "checkpoint/saved_model_reader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/problems.h"
#include "checkpoint/safetensors_header.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

std::string Describe(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

/// `bytes`: of a tensor of U8.
void CheckTensor(const ModelDirectory& model, const std::string& tensor, const std::vector<int64_t>& shape, bool bytes,
                 Problems& problems) {
  const SafetensorsEntry* entry = model.Find(tensor);
  const std::string name = absl::StrCat("tensor ", Quoted(tensor));
  if (entry == nullptr) {
    problems.Add(absl::StrCat(name, " is missing"));
  } else if (bytes ? entry->dtype_name != "U8" : entry->dtype == FileDType::kOther) {
    problems.Add(absl::StrCat(name, " has dtype ", Quoted(entry->dtype_name), "; ",
                              bytes ? "U8 is expected" : "F32, F16 and BF16 can be read"));
  } else if (entry->shape != shape) {
    problems.Add(absl::StrCat(name, " has shape ", Describe(entry->shape), "; expected ", Describe(shape)));
  }
}

void CheckTensor(const ModelDirectory& model, const ExternalTensor& tensor, Problems& problems) {
  std::vector<int64_t> shape;
  for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
  if (tensor.scales.empty()) return CheckTensor(model, tensor.name, shape, false, problems);
  shape.back() /= kMxfp4Values;
  CheckTensor(model, tensor.scales, shape, true, problems);
  shape.push_back(kMxfp4Bytes);
  CheckTensor(model, tensor.name, shape, true, problems);
}

/// `known`: what was looked for; what is found of other forms is then, too.
void CheckIsThereOnce(const ModelDirectory& model, const ExternalTensor& tensor, std::set<std::string>& known,
                      Problems& problems) {
  for (const ExternalRows& other : tensor.others) {
    if (model.Find(other.name) == nullptr || !known.insert(other.name).second) continue;
    const bool has_scales = !other.scales.empty() && known.insert(other.scales).second;
    problems.Add(absl::StrCat("tensor ", Quoted(tensor.name), " is there a second time, as ", Quoted(other.name),
                              has_scales ? " and " + Quoted(other.scales) : "",
                              ": remove one of the two forms from the files"));
  }
}

absl::Status CheckTensors(const std::string& directory, const ModelDirectory& model, const TensorMap& map,
                          const std::function<bool(const std::string&)>& ignorable) {
  Problems problems;
  std::set<std::string> known;
  for (const ExternalTensor& tensor : map) {
    if (!known.insert(tensor.name).second) continue;  // of several parameters, which want the same of it
    if (!tensor.scales.empty()) known.insert(tensor.scales);
    CheckTensor(model, tensor, problems);
  }
  for (const ExternalTensor& tensor : map) CheckIsThereOnce(model, tensor, known, problems);
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
    tensor.row_step = found->row_step;
    tensor.transposed = found->transposed;
    tensor.scales = found->scales;
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
  for (const ExternalTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, tensor));
    if (slice.elements() == 0) continue;
    const auto& files = reader.model_.tensors();
    reader.pieces_.push_back({.name = tensor.name,
                              .file = files.at(tensor.name),
                              .slice = slice,
                              .place = PlaceOf(tensor, slice.cols),
                              .subtracted = tensor.subtracted,
                              .scales = tensor.scales,
                              .scales_file = tensor.scales.empty() ? nullptr : files.at(tensor.scales)});
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
    RETURN_IF_ERROR(!piece.scales.empty()       ? ReadMxfp4(piece, inside, part)
                    : piece.place.col_step == 1 ? ReadRows(piece, inside, part)
                                                : ReadTransposed(piece, inside, part));
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
  return piece.file->Read(piece.name, piece.place.first + first, out);
}

// The file has columns where rows are here, row_step apart.
absl::Status SavedModelReader::ReadTransposed(const Piece& piece, int64_t first, absl::Span<float> out) {
  const FilePlace& place = piece.place;
  const int64_t cols = piece.slice.cols, first_row = first / cols, rows = static_cast<int64_t>(out.size()) / cols;
  HOLDFAST_CHECK(first % cols == 0 && rows * cols == static_cast<int64_t>(out.size()));
  const int64_t begin = place.first + first_row * place.row_step, width = (rows - 1) * place.row_step + 1;
  const bool at_once = 2 * width > place.col_step;  // what lies between the wanted ones of two lines is little
  const int64_t line = at_once ? place.col_step : width, lines_per_block = std::max<int64_t>(1, kBlockElements / line);
  std::vector<float> block(static_cast<size_t>(std::min(lines_per_block, cols) * line));
  for (int64_t col = 0; col < cols; col += lines_per_block) {
    const int64_t count = std::min(lines_per_block, cols - col);
    const int64_t run = at_once ? (count - 1) * line + width : width;
    const auto read = absl::MakeSpan(block).first(static_cast<size_t>(at_once ? run : count * run));
    RETURN_IF_ERROR(piece.file->ReadRuns(piece.name, {begin + col * place.col_step, place.col_step, run}, read));
    CopyMatrix({block.data(), line, place.row_step}, count, rows, {out.data() + col, 1, cols});
  }
  return absl::OkStatus();
}

// Blocks of whole rows; those of other parameters between them are read, too, and left out.
absl::Status SavedModelReader::ReadMxfp4(const Piece& piece, int64_t first, absl::Span<float> out) {
  const int64_t cols = piece.slice.cols, blocks = cols / kMxfp4Values;
  const int64_t file_row = piece.place.first / cols, step = piece.place.row_step / cols;
  const int64_t last = first + static_cast<int64_t>(out.size()), last_row = (last + cols - 1) / cols;
  const int64_t rows_per_read = std::max<int64_t>(1, kBlockElements / (step * cols));
  std::vector<uint8_t> bytes, scales;
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r0 = first / cols; r0 < last_row; r0 += rows_per_read) {
    const int64_t count = std::min(rows_per_read, last_row - r0), of_file = (count - 1) * step + 1;
    const int64_t block = (file_row + r0 * step) * blocks;
    scales.resize(static_cast<size_t>(of_file * blocks));
    bytes.resize(scales.size() * kMxfp4Bytes);
    RETURN_IF_ERROR(piece.scales_file->ReadBytes(piece.scales, block, absl::MakeSpan(scales)));
    RETURN_IF_ERROR(piece.file->ReadBytes(piece.name, block * kMxfp4Bytes, absl::MakeSpan(bytes)));
    for (int64_t r = r0; r < r0 + count; ++r) {
      const auto at = static_cast<size_t>((r - r0) * step * blocks);
      DecodeMxfp4(absl::MakeConstSpan(bytes).subspan(at * kMxfp4Bytes, static_cast<size_t>(blocks * kMxfp4Bytes)),
                  absl::MakeConstSpan(scales).subspan(at, static_cast<size_t>(blocks)), absl::MakeSpan(row));
      if (const auto bad = std::ranges::find_if_not(row, [](float value) { return std::isfinite(value); });
          bad != row.end()) {
        return absl::FailedPreconditionError(absl::StrCat(piece.file->path(), ": tensor ", Quoted(piece.name),
                                                          ": value ", bad - row.begin(), " of row ",
                                                          file_row + r * step, " is NaN or infinite"));
      }
      const int64_t begin = std::max(first, r * cols), end = std::min(last, (r + 1) * cols);
      std::copy(row.begin() + (begin - r * cols), row.begin() + (end - r * cols), out.begin() + (begin - first));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
