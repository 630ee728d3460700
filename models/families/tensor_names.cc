#include "models/families/tensor_names.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Numbers = std::vector<std::string>;

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

/// What the # of `pattern` stand for in `module`.
std::optional<Numbers> Match(const std::string& pattern, const std::string& module) {
  const std::vector<std::string> wanted = absl::StrSplit(pattern, '.'), words = absl::StrSplit(module, '.');
  if (wanted.size() != words.size()) return std::nullopt;
  Numbers numbers;
  for (size_t i = 0; i < words.size(); ++i) {
    if (wanted[i] == "#" && IsNumber(words[i])) {
      numbers.push_back(words[i]);
    } else if (wanted[i] != words[i]) {
      return std::nullopt;
    }
  }
  return numbers;
}

std::string Fill(const std::string& pattern, const Numbers& numbers) {
  std::vector<std::string> words = absl::StrSplit(pattern, '.');
  auto next = numbers.begin();
  for (std::string& word : words) {
    if (word == "#") word = *next++;
  }
  return absl::StrJoin(words, ".");
}

/// The names of a tensor, with and without the prefix of the model, of which the first is the one that is written.
std::vector<std::string> NamesOf(const TensorNames& names, const TensorRule& rule, const std::string& bare) {
  if (!rule.prefixed) return {bare};
  return {names.prefix + bare, bare};
}

/// What follows the module in their name of it.
std::string KindOf(const TensorRule& rule, const ParameterSpec& spec) {
  if (rule.joined) return spec.is_matrix() ? "" : "_bias";
  return rule.kind.empty() ? spec.name.substr(spec.name.rfind('.')) : rule.kind;
}

/// Where else files may have rows [first_row, ...) of the parameter.
std::vector<ExternalRows> Others(const TensorNames& names, const TensorRule& rule, const TensorRule::Part& part,
                                 const Numbers& numbers, const ParameterSpec& spec, const ExternalTensor& tensor) {
  const std::string kind = KindOf(rule, spec);
  std::vector<ExternalRows> others;
  for (const std::string& pattern : {part.name, part.other}) {
    if (pattern.empty()) continue;
    for (const std::string& name : NamesOf(names, rule, Fill(pattern, numbers) + kind)) {
      if (name == tensor.name) continue;
      others.push_back({.name = name,
                        .first_row = tensor.file_row,
                        .shape = tensor.shape,
                        .row_step = tensor.row_step,
                        .transposed = tensor.transposed});
    }
  }
  const int64_t rows = spec.shape.rows(), cols = spec.shape.cols();
  if (rule.joined && spec.is_matrix() && cols % kMxfp4Values == 0) {
    for (const std::string& name : NamesOf(names, rule, Fill(part.name, numbers))) {
      others.push_back({.name = name + "_blocks",
                        .first_row = tensor.file_row,
                        .shape = {rule.stack, rows, cols},
                        .row_step = tensor.row_step,
                        .scales = name + "_scales"});
    }
  }
  if (rule.stacked.empty()) return others;
  const Shape stacked{rule.stack, rows, cols};
  const int64_t first = std::stoll(numbers.back()) * rows + tensor.first_row;
  for (const std::string& name : NamesOf(names, rule, Fill(rule.stacked, numbers))) {
    others.push_back({.name = name, .first_row = first, .shape = stacked});
  }
  return others;
}

/// `tensor`: of a part of an expert.
void Join(const TensorRule& rule, int64_t expert, const ParameterSpec& spec, ExternalTensor* tensor) {
  const auto parts = static_cast<int64_t>(rule.theirs.size());
  const int64_t rows = tensor->num_rows * parts;
  HOLDFAST_CHECK(rows == (spec.is_matrix() ? spec.shape.rows() : spec.shape.elements()));
  tensor->transposed = true;
  tensor->shape = spec.is_matrix() ? Shape{rule.stack, spec.shape.cols(), rows} : Shape{rule.stack, rows};
  tensor->row_step = parts;
  tensor->file_row = expert * rows + tensor->first_row / tensor->num_rows;
}

void AppendPieces(const TensorNames& names, const TensorRule& rule, const Numbers& numbers, const ParameterSpec& spec,
                  int parameter, TensorMap* map) {
  const std::string kind = KindOf(rule, spec);
  const int64_t all_rows = spec.is_matrix() ? spec.shape.rows() : spec.shape.elements();
  int64_t first_row = 0;
  for (const TensorRule::Part& part : rule.theirs) {
    ExternalTensor tensor{.name = {}, .parameter = parameter, .first_row = first_row, .shape = {}};
    tensor.num_rows = part.rows == 0 ? all_rows : part.rows;
    tensor.subtracted = rule.subtracted;
    tensor.transposed = rule.transposed && spec.is_matrix();
    tensor.fp32 = spec.balance.has_value();
    tensor.name = NamesOf(names, rule, Fill(part.name, numbers) + kind).front();
    const int64_t rows = tensor.num_rows, cols = spec.shape.cols();
    tensor.shape = !spec.is_matrix() ? Shape{rows} : tensor.transposed ? Shape{cols, rows} : Shape{rows, cols};
    if (rule.joined) Join(rule, std::stoll(numbers.back()), spec, &tensor);
    tensor.others = Others(names, rule, part, numbers, spec, tensor);
    first_row += rows;
    map->push_back(std::move(tensor));
  }
  HOLDFAST_CHECK(first_row == all_rows);
}

}  // namespace

TensorMap MakeTensorMap(const TensorNames& names, const ParameterLayout& layout) {
  TensorMap map;
  for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p) {
    const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(p)];
    const std::string module = spec.name.substr(0, spec.name.rfind('.'));
    bool found = false;
    for (const TensorRule& rule : names.rules) {
      const std::optional<Numbers> numbers = Match(rule.ours, module);
      if (!numbers.has_value()) continue;
      AppendPieces(names, rule, *numbers, spec, p, &map);
      found = true;
      break;
    }
    HOLDFAST_CHECK(found);
  }
  return map;
}

}  // namespace holdfast
