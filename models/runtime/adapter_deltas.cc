#include "models/runtime/adapter_deltas.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
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

/// Of a tensor that is no matrix of an adapter: what it is, if PEFT makes it of the head or the table of tokens.
std::string WhatElse(absl::string_view name) {
  if (absl::EndsWith(name, ".base_layer.weight")) {
    return ", but the layer itself, which PEFT saves besides, unless `save_pretrained` is told "
           "save_embedding_layers=False";
  }
  return absl::StrContains(name, ".lora_embedding_") ? " that is supported: the table of tokens has none" : "";
}

/// The layers that have adapters in a file, each with one matrix or both.
absl::StatusOr<std::set<std::string>> ModulesOf(const SafetensorsReader& file) {
  std::set<std::string> modules;
  for (const auto& [name, entry] : file.entries()) {
    absl::string_view module = name;
    if (!absl::ConsumePrefix(&module, kAdapterPrefix) ||
        (!absl::ConsumeSuffix(&module, kAdapterA) && !absl::ConsumeSuffix(&module, kAdapterB))) {
      return absl::UnimplementedError(
          absl::StrCat(file.path(), ": ", name, " is no matrix of an adapter", WhatElse(name)));
    }
    modules.emplace(module);
  }
  return modules;
}

/// Both of two would be added to the same weight.
absl::Status CheckOneForEachWeight(const std::vector<AdapterDeltas::LowRank>& adapters, const std::string& path) {
  std::vector<const AdapterDeltas::LowRank*> in_order;
  for (const AdapterDeltas::LowRank& low : adapters) in_order.push_back(&low);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->parameter, a->first_row) < std::tie(b->parameter, b->first_row);
  });
  for (size_t i = 1; i < in_order.size(); ++i) {
    const AdapterDeltas::LowRank &before = *in_order[i - 1], &low = *in_order[i];
    if (low.parameter != before.parameter || low.first_row >= before.first_row + before.rows) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", before.module, " and ", low.module, " are two adapters for one layer"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AdapterDeltas::ReadPair(const SafetensorsReader& file, const std::string& module, const RankAndScale& kind,
                                     const ParameterLayout& layout, Target target) {
  const int64_t rank = kind.rank;
  const std::string name_a = absl::StrCat(kAdapterPrefix, module, kAdapterA),
                    name_b = absl::StrCat(kAdapterPrefix, module, kAdapterB);
  const auto a = file.entries().find(name_a), b = file.entries().find(name_b);
  if (a == file.entries().end() || b == file.entries().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": of the two matrices for ", module, " one is missing"));
  }
  std::vector<LowRank>& weights = target.weights;
  const auto experts = static_cast<int64_t>(weights.size());
  const int64_t rows = weights.front().rows,
                cols = layout.parameters()[static_cast<size_t>(weights.front().parameter)].shape.cols();
  const std::vector<int64_t> shape_a = {experts * rank, cols}, shape_b = {rows, experts * rank};
  if (a->second.shape != shape_a || b->second.shape != shape_b) {
    return OtherModel(file.path(),
                      absl::StrCat(module, " has adapters [", absl::StrJoin(a->second.shape, ", "), "] and [",
                                   absl::StrJoin(b->second.shape, ", "), "], its weight is [",
                                   experts > 1 ? absl::StrCat(experts, ", ") : "", rows, ", ", cols, "], r ", rank));
  }
  std::vector<float> all_a(static_cast<size_t>(experts * rank * cols)),
      all_b(static_cast<size_t>(rows * experts * rank));
  RETURN_IF_ERROR(file.Read(name_a, 0, absl::MakeSpan(all_a)));
  RETURN_IF_ERROR(file.Read(name_b, 0, absl::MakeSpan(all_b)));
  const auto append = [](const std::vector<float>& all, int64_t elements, const ExpertElements& of,
                         std::vector<float>* to) {
    for (int64_t i = 0; i < elements; ++i) to->push_back(all[static_cast<size_t>(of.At(i))]);
  };
  for (int64_t e = 0; e < experts; ++e) {
    LowRank& low = weights[static_cast<size_t>(e)];
    low.rank = rank;
    low.scale = kind.scale;
    low.module = module;
    append(all_a, rank * cols, ElementsOfA(e, rank * cols), &low.a);
    for (int64_t part = 0; part < target.parts; ++part) {
      append(all_b, rows / target.parts * rank, ElementsOfB(e, experts, rank, part, target.parts), &low.b);
    }
    all_.push_back(std::move(low));
  }
  return absl::OkStatus();
}

std::map<std::string, AdapterDeltas::Target> AdapterDeltas::TargetsOf(const ModelConfig& model,
                                                                      const ParameterLayout& layout,
                                                                      const AdapterKind& kind) {
  std::map<std::string, Target> targets;
  std::map<std::string, std::vector<std::string>> stacked_of;  // parameters of one module, in its order
  for (const ExternalTensor& tensor : HuggingFaceTensorMap(model, layout)) {
    for (const std::string& name : {tensor.name, NewestName(tensor)}) {
      if (!absl::EndsWith(name, kWeightSuffix)) continue;
      const std::string module(absl::StripSuffix(name, kWeightSuffix));
      targets[module] = {
          .name = kind.IsForParameter(name) ? name : module,
          .weights = {{.parameter = tensor.parameter, .first_row = tensor.first_row, .rows = tensor.num_rows}}};
    }
    const std::optional<ExternalRows> stacked = StackedTensor(tensor);
    if (!stacked.has_value() || tensor.first_row > 0 || !kind.IsForParameter(stacked->name)) continue;
    Target& experts = targets[stacked->name];  // until it is known what is adapted besides
    experts.name = stacked->name;
    experts.parts = stacked->row_step;
    if (experts.weights.empty()) {
      stacked_of[stacked->name.substr(0, stacked->name.rfind('.'))].push_back(stacked->name);
    }
    experts.weights.push_back({.parameter = tensor.parameter,
                               .rows = layout.parameters()[static_cast<size_t>(tensor.parameter)].shape.rows()});
  }
  for (const auto& [module, names] : stacked_of) {
    for (size_t i = 0; i < names.size(); ++i) {
      targets[WrappedModule(module, i, names.size())] = std::move(targets[names[i]]);
      targets.erase(names[i]);
    }
  }
  return targets;
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Read(const std::string& directory, const ModelConfig& model,
                                                  const std::string& base_digest) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const AdapterKind kind, ReadAdapterKind(directory));
  ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(absl::StrCat(directory, "/", kAdapterWeightsFile)));
  RETURN_IF_ERROR(CheckBase(*file, base_digest));
  const ParameterLayout layout = TransformerLayout(model);
  const std::map<std::string, Target> targets = TargetsOf(model, layout, kind);
  const auto is_tied_head = [&](const std::string& module) {
    ModelConfig untied = model;
    untied.tie_embeddings = false;
    return TargetsOf(untied, TransformerLayout(untied), kind).contains(module);
  };
  ASSIGN_OR_RETURN(const std::set<std::string> modules, ModulesOf(*file));
  for (const std::string& module : modules) {
    const auto found = targets.find(module);
    if (found == targets.end() && is_tied_head(module)) {
      return absl::UnimplementedError(absl::StrCat(
          file->path(), ": ", module,
          " has an adapter, but no weights of its own: they are the table of tokens (tie_word_embeddings)"));
    }
    if (found == targets.end()) return OtherModel(file->path(), absl::StrCat(module, " is no layer of it"));
    ASSIGN_OR_RETURN(const RankAndScale of_module, kind.Of(found->second.name));
    RETURN_IF_ERROR(deltas.ReadPair(*file, module, of_module, layout, found->second));
  }
  RETURN_IF_ERROR(CheckOneForEachWeight(deltas.all_, file->path()));
  return deltas;
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Of(const Config& config, const ParameterLayout& layout,
                                                const ReadWeightsFn& read) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  ASSIGN_OR_RETURN(const std::vector<AdaptedLayer> adapted, AdaptedLayers(config, layout));
  const auto rows = [&](int parameter, int64_t first, int64_t count, std::vector<float>* out) {
    const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(parameter)];
    out->resize(static_cast<size_t>(count * spec.shape.cols()));
    return read(spec.offset + first * spec.shape.cols(), absl::MakeSpan(*out));
  };
  for (const AdaptedLayer& layer : adapted) {
    LowRank low{.parameter = layer.weight,
                .first_row = layer.first_row,
                .rows = layer.rows,
                .rank = lora.rank,
                .scale = lora.scale};
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
        out[static_cast<size_t>(at - begin)] += low.scale * row[static_cast<size_t>(at - r * cols)];
      }
    }
  }
}

}  // namespace holdfast
