#include "models/runtime/adapter_deltas.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/model_directory.h"
#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "models/families/huggingface.h"
#include "models/runtime/adapted_layers.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

absl::Status OtherModel(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, ": the adapters are for another model"));
}

absl::Status CheckBase(const SafetensorsReader& file, const std::string& base_digest) {
  const auto named = file.metadata().find(kBaseDigestKey);
  if (named == file.metadata().end() || base_digest.empty() || named->second == base_digest) return absl::OkStatus();
  return OtherModel(file.path(), absl::StrCat("they were trained on weights with the digest ", named->second,
                                              ", these have ", base_digest));
}

/// The layers that have adapters in a file, each with one matrix or both.
absl::StatusOr<std::set<std::string>> ModulesOf(const SafetensorsReader& file) {
  std::set<std::string> modules;
  for (const auto& [name, entry] : file.entries()) {
    absl::string_view module = name;
    if (!absl::ConsumePrefix(&module, kAdapterPrefix) ||
        (!absl::ConsumeSuffix(&module, kAdapterA) && !absl::ConsumeSuffix(&module, kAdapterB))) {
      return absl::UnimplementedError(absl::StrCat(file.path(), ": ", name, " is no matrix of an adapter"));
    }
    modules.emplace(module);
  }
  return modules;
}

}  // namespace

absl::StatusOr<AdapterDeltas::LowRank> AdapterDeltas::ReadPair(const SafetensorsReader& file, const std::string& module,
                                                               int64_t rank, const ParameterLayout& layout,
                                                               const ExternalTensor& weight) {
  const std::string name_a = absl::StrCat(kAdapterPrefix, module, kAdapterA),
                    name_b = absl::StrCat(kAdapterPrefix, module, kAdapterB);
  const auto a = file.entries().find(name_a), b = file.entries().find(name_b);
  if (a == file.entries().end() || b == file.entries().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": of the two matrices for ", module, " one is missing"));
  }
  const int64_t cols = layout.parameters()[static_cast<size_t>(weight.parameter)].shape.cols();
  const std::vector<int64_t> shape_a = {rank, cols}, shape_b = {weight.num_rows, rank};
  if (a->second.shape != shape_a || b->second.shape != shape_b) {
    return OtherModel(file.path(), absl::StrCat(module, " has adapters [", absl::StrJoin(a->second.shape, ", "),
                                                "] and [", absl::StrJoin(b->second.shape, ", "), "], its weight is [",
                                                weight.num_rows, ", ", cols, "], r ", rank));
  }
  LowRank low{.parameter = weight.parameter, .first_row = weight.first_row, .rows = weight.num_rows, .rank = rank};
  low.a.resize(static_cast<size_t>(rank * cols));
  low.b.resize(static_cast<size_t>(weight.num_rows * rank));
  RETURN_IF_ERROR(file.Read(name_a, 0, absl::MakeSpan(low.a)));
  RETURN_IF_ERROR(file.Read(name_b, 0, absl::MakeSpan(low.b)));
  return low;
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Read(const std::string& directory, const ModelConfig& model,
                                                  const std::string& base_digest) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const AdapterKind kind, ReadAdapterKind(directory));
  deltas.scale_ = kind.scale;
  ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(absl::StrCat(directory, "/", kAdapterWeightsFile)));
  RETURN_IF_ERROR(CheckBase(*file, base_digest));
  const ParameterLayout layout = TransformerLayout(model);
  std::map<std::string, ExternalTensor> weights;
  for (const ExternalTensor& tensor : HuggingFaceTensorMap(model, layout)) weights.emplace(tensor.name, tensor);
  ASSIGN_OR_RETURN(const std::set<std::string> modules, ModulesOf(*file));
  for (const std::string& module : modules) {
    const auto weight = weights.find(module + kWeightSuffix);
    if (weight == weights.end()) return OtherModel(file->path(), absl::StrCat(module, " is no layer of it"));
    ASSIGN_OR_RETURN(deltas.all_.emplace_back(), ReadPair(*file, module, kind.rank, layout, weight->second));
  }
  return deltas;
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Of(const Config& config, const ParameterLayout& layout,
                                                const ReadWeightsFn& read) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  deltas.scale_ = lora.scale;
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  const auto rows = [&](int parameter, int64_t first, int64_t count, std::vector<float>* out) {
    const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(parameter)];
    out->resize(static_cast<size_t>(count * spec.shape.cols()));
    return read(spec.offset + first * spec.shape.cols(), absl::MakeSpan(*out));
  };
  for (const AdaptedLayer& layer : adapted) {
    LowRank low{.parameter = layer.weight, .first_row = layer.first_row, .rows = layer.rows, .rank = lora.rank};
    RETURN_IF_ERROR(rows(layer.a, layer.first_row_of_a, lora.rank, &low.a));
    RETURN_IF_ERROR(rows(layer.b, layer.first_row_of_b, layer.rows, &low.b));
    deltas.all_.push_back(std::move(low));
  }
  return deltas;
}

void AdapterDeltas::AddTo(const ParameterLayout& layout, int64_t first, absl::Span<float> out) const {
  const int parameter = ParameterAt(layout, first);
  const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(parameter)];
  const int64_t cols = spec.shape.cols(), begin = first - spec.offset, end = begin + static_cast<int64_t>(out.size());
  std::vector<float> row(static_cast<size_t>(cols));
  for (const LowRank& low : all_) {
    if (low.parameter != parameter) continue;
    for (int64_t r = std::max(low.first_row, begin / cols); r < low.first_row + low.rows && r * cols < end; ++r) {
      std::fill(row.begin(), row.end(), 0.0f);
      for (int64_t k = 0; k < low.rank; ++k) {
        const float factor = low.b[static_cast<size_t>((r - low.first_row) * low.rank + k)];
        const float* const a = &low.a[static_cast<size_t>(k * cols)];
        for (int64_t c = 0; c < cols; ++c) row[static_cast<size_t>(c)] += factor * a[c];
      }
      for (int64_t at = std::max(begin, r * cols); at < std::min(end, (r + 1) * cols); ++at) {
        out[static_cast<size_t>(at - begin)] += scale_ * row[static_cast<size_t>(at - r * cols)];
      }
    }
  }
}

}  // namespace holdfast
