#include "models/runtime/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "framework/base/files.h"
#include "framework/base/json_depth.h"
#include "framework/base/status.h"
#include "framework/nn/trained_part.h"
#include "models/families/huggingface.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "base_model.model.", kA[] = ".lora_A.weight", kB[] = ".lora_B.weight", kWeight[] = ".weight";
constexpr char kBaseDigest[] = "base_digest";  // in the metadata of adapter_model.safetensors
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr int kMaxConfigDepth = 16;

std::string PathOf(const std::string& directory, const char* name) { return absl::StrCat(directory, "/", name); }

/// A layer of theirs that has an adapter: rows of a weight of the model, and of the two matrices of ours.
struct Adapted {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int weight = 0;      // in the layout without adapters
  int64_t first_row = 0, rows = 0;
  int a = 0, b = 0;  // in the layout with adapters
  int64_t first_row_of_a = 0, first_row_of_b = 0;
};

/// Which of the layers of theirs that a weight of ours is made of have adapters.
std::vector<bool> WantedParts(const LoraOptions& lora, const std::string& module, size_t parts) {
  if (parts == 3 && absl::EndsWith(module, ".attention.qkv")) return {lora.query, lora.key, lora.value};
  if (parts == 2 && absl::EndsWith(module, ".gate_up")) return {lora.gate, lora.up};
  return std::vector<bool>(parts, true);
}

absl::StatusOr<std::vector<Adapted>> AdaptedLayers(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  const ParameterLayout base = TransformerLayout(config.model);
  std::map<int, std::vector<ExternalTensor>> of_weight;  // by first row, as the map has them
  for (ExternalTensor& tensor : HuggingFaceTensorMap(config.model, base)) {
    of_weight[tensor.parameter].push_back(std::move(tensor));
  }
  std::vector<Adapted> adapted;
  for (const auto& [weight, tensors] : of_weight) {
    const std::string module(absl::StripSuffix(base.parameters()[static_cast<size_t>(weight)].name, kWeight));
    const int a = layout.Find(module + ".lora_a"), b = layout.Find(module + ".lora_b");
    if (a < 0) continue;
    const std::vector<bool> wanted = WantedParts(lora, module, tensors.size());
    int64_t of_a = 0, of_b = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!wanted[i]) continue;
      adapted.push_back({.module = std::string(absl::StripSuffix(tensors[i].name, kWeight)),
                         .weight = weight,
                         .first_row = tensors[i].first_row,
                         .rows = tensors[i].num_rows,
                         .a = a,
                         .b = b,
                         .first_row_of_a = of_a,
                         .first_row_of_b = of_b});
      of_a += lora.rank;
      of_b += tensors[i].num_rows;
    }
  }
  return adapted;
}

TensorMap TensorMapOf(const std::vector<Adapted>& adapted, const ParameterLayout& layout, int64_t rank) {
  TensorMap map;
  const auto add = [&](const std::string& name, int parameter, int64_t first_row, int64_t rows) {
    const int64_t cols = layout.parameters()[static_cast<size_t>(parameter)].shape.cols();
    map.push_back({.name = absl::StrCat(kPrefix, name),
                   .parameter = parameter,
                   .first_row = first_row,
                   .num_rows = rows,
                   .shape = {rows, cols}});
  };
  for (const Adapted& layer : adapted) {
    add(layer.module + kA, layer.a, layer.first_row_of_a, rank);
    add(layer.module + kB, layer.b, layer.first_row_of_b, layer.rows);
  }
  return map;
}

std::string LastWord(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// As adapter_config.json names layers: by their last words, or whole where others end in one of these, too.
std::vector<std::string> TargetModules(const std::vector<Adapted>& adapted, const TensorMap& base) {
  std::set<std::string> modules, words;
  for (const Adapted& layer : adapted) {
    modules.insert(layer.module);
    words.insert(LastWord(layer.module));
  }
  for (const ExternalTensor& tensor : base) {
    const std::string module(absl::StripSuffix(tensor.name, kWeight));
    if (words.contains(LastWord(module)) && !modules.contains(module)) return {modules.begin(), modules.end()};
  }
  return {words.begin(), words.end()};
}

std::string ConfigJson(const Config& config, const std::vector<Adapted>& adapted) {
  const TensorMap base = HuggingFaceTensorMap(config.model, TransformerLayout(config.model));
  const bool transposed = std::any_of(base.begin(), base.end(), [](const ExternalTensor& t) { return t.transposed; });
  std::error_code error;
  const auto absolute = std::filesystem::absolute(config.train.init_from, error);
  const nlohmann::ordered_json object = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", error ? config.train.init_from : absolute.lexically_normal().string()},
      {"r", config.lora.rank},
      {"lora_alpha", config.lora.alpha},
      {"lora_dropout", config.lora.dropout},
      {"use_rslora", config.lora.rslora},
      {"target_modules", TargetModules(adapted, base)},
      {"fan_in_fan_out", transposed},
      {"bias", "none"},
      {"inference_mode", true}};
  return object.dump(2) + "\n";
}

absl::StatusOr<json> ReadConfig(const std::string& directory) {
  const std::string path = PathOf(directory, kAdapterConfigFile);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  if (!JsonNestsDeeperThan(text, kMaxConfigDepth)) {
    json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) return object;
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
}

/// Null and what is left out, false and empty are one.
bool IsSet(const json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  return !((value.is_object() || value.is_array() || value.is_string()) && value.empty());
}

/// Keys that say what is in the tensors' names anyway, or nothing about what adapters compute.
bool IsUnderstood(const std::string& key) {
  static const std::set<std::string> keys = {"peft_type",
                                             "task_type",
                                             "base_model_name_or_path",
                                             "r",
                                             "lora_alpha",
                                             "lora_dropout",
                                             "use_rslora",
                                             "target_modules",
                                             "exclude_modules",
                                             "auto_mapping",
                                             "fan_in_fan_out",
                                             "inference_mode",
                                             "revision",
                                             "peft_version",
                                             "megatron_core",
                                             "layers_pattern",
                                             "layers_to_transform",
                                             "qalora_group_size"};
  return keys.contains(key);
}

absl::Status CheckConfig(const json& config, const std::string& path) {
  if (config.value("peft_type", json()) != json("LORA")) {
    return absl::UnimplementedError(absl::StrCat(path, ": peft_type is not LORA"));
  }
  for (const auto& [key, value] : config.items()) {
    const bool plain_bias = key == "bias" && value == json("none");
    // Others than these change the base, too.
    const bool plain_init = key == "init_lora_weights" && (value.is_boolean() || value == json("gaussian"));
    if (!IsSet(value) || plain_bias || plain_init || IsUnderstood(key)) continue;
    return absl::UnimplementedError(absl::StrCat(path, ": ", key, " ", value.dump(), " is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Number(const json& config, const char* key, const std::string& path) {
  const auto found = config.find(key);
  if (found != config.end() && found->is_number()) return found->get<double>();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, " is no number"));
}

absl::StatusOr<float> ScaleOf(const json& config, const std::string& path) {
  RETURN_IF_ERROR(CheckConfig(config, path));
  ASSIGN_OR_RETURN(const double rank, Number(config, "r", path));
  ASSIGN_OR_RETURN(const double alpha, Number(config, "lora_alpha", path));
  if (!(rank >= 1) || !std::isfinite(alpha)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": r or lora_alpha is out of range"));
  }
  return static_cast<float>(alpha / (IsSet(config.value("use_rslora", json())) ? std::sqrt(rank) : rank));
}

absl::Status OtherModel(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, ": the adapters are for another model"));
}

}  // namespace

bool HoldsAdapter(const std::string& directory) {
  std::error_code error;
  return std::filesystem::exists(PathOf(directory, kAdapterConfigFile), error);
}

absl::StatusOr<std::string> BaseModelOf(const std::string& directory) {
  ASSIGN_OR_RETURN(const json config, ReadConfig(directory));
  const json base = config.value("base_model_name_or_path", json());
  if (base.is_string() && !base.get<std::string>().empty()) return base.get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat(PathOf(directory, kAdapterConfigFile), ": base_model_name_or_path names no directory"));
}

absl::StatusOr<TensorMap> AdapterTensorMap(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const std::vector<Adapted> adapted, AdaptedLayers(config, layout));
  return TensorMapOf(adapted, layout, config.lora.rank);
}

absl::Status SaveAdapter(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, FileDType dtype) {
  ASSIGN_OR_RETURN(const std::vector<Adapted> adapted, AdaptedLayers(config, layout));
  return SaveAdapterFiles(directory, layout, TensorMapOf(adapted, layout, config.lora.rank), read, dtype,
                          {.config_json = ConfigJson(config, adapted),
                           .metadata = {{"format", "pt"}, {kBaseDigest, config.train.init_digest}}});
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Read(const std::string& directory, const ModelConfig& model,
                                                  const std::string& base_digest) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const json config, ReadConfig(directory));
  ASSIGN_OR_RETURN(deltas.scale_, ScaleOf(config, PathOf(directory, kAdapterConfigFile)));
  const std::string path = PathOf(directory, kAdapterWeightsFile);
  ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(path));
  const auto named = file->metadata().find(kBaseDigest);
  if (named != file->metadata().end() && !base_digest.empty() && named->second != base_digest) {
    return OtherModel(path, absl::StrCat("they were trained on weights with the digest ", named->second,
                                         ", these have ", base_digest));
  }
  const ParameterLayout layout = TransformerLayout(model);
  std::map<std::string, ExternalTensor> tensors;
  for (ExternalTensor& tensor : HuggingFaceTensorMap(model, layout)) {
    std::string name = tensor.name;
    tensors.emplace(std::move(name), std::move(tensor));
  }
  for (const auto& [name, entry] : file->entries()) {
    const bool is_a = absl::EndsWith(name, kA);
    if (!absl::StartsWith(name, kPrefix) || (!is_a && !absl::EndsWith(name, kB))) {
      return absl::UnimplementedError(absl::StrCat(path, ": ", name, " is no matrix of an adapter"));
    }
    const std::string module = name.substr(sizeof(kPrefix) - 1, name.size() - sizeof(kPrefix) + 1 - (sizeof(kA) - 1));
    const auto b = file->entries().find(absl::StrCat(kPrefix, module, kB));
    const auto target = tensors.find(absl::StrCat(module, kWeight));
    if (target == tensors.end()) return OtherModel(path, absl::StrCat(module, " is no layer of it"));
    if (!file->entries().contains(absl::StrCat(kPrefix, module, kA)) || b == file->entries().end()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": of the two matrices for ", module, " one is missing"));
    }
    if (!is_a) continue;
    const ExternalTensor& weight = target->second;
    const int64_t cols = layout.parameters()[static_cast<size_t>(weight.parameter)].shape.cols();
    const std::vector<int64_t>&shape = entry.shape, &of_b = b->second.shape;
    if (shape.size() != 2 || of_b.size() != 2 || shape[1] != cols || of_b[0] != weight.num_rows ||
        shape[0] != of_b[1] || static_cast<double>(shape[0]) != config["r"].get<double>()) {
      return OtherModel(path, absl::StrCat(module, " has adapters [", absl::StrJoin(shape, ", "), "] and [",
                                           absl::StrJoin(of_b, ", "), "], its weight is [", weight.num_rows, ", ", cols,
                                           "], r ", config["r"].dump()));
    }
    LowRank low{
        .parameter = weight.parameter, .first_row = weight.first_row, .rows = weight.num_rows, .rank = shape[0]};
    low.a.resize(static_cast<size_t>(shape[0] * cols));
    low.b.resize(static_cast<size_t>(weight.num_rows * shape[0]));
    RETURN_IF_ERROR(file->Read(name, 0, absl::MakeSpan(low.a)));
    RETURN_IF_ERROR(file->Read(b->first, 0, absl::MakeSpan(low.b)));
    deltas.all_.push_back(std::move(low));
  }
  return deltas;
}

absl::StatusOr<AdapterDeltas> AdapterDeltas::Of(const Config& config, const ParameterLayout& layout,
                                                const ReadWeightsFn& read) {
  AdapterDeltas deltas;
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  deltas.scale_ = lora.scale;
  ASSIGN_OR_RETURN(const std::vector<Adapted> adapted, AdaptedLayers(config, layout));
  const auto rows = [&](int parameter, int64_t first, int64_t count, std::vector<float>* out) {
    const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(parameter)];
    out->resize(static_cast<size_t>(count * spec.shape.cols()));
    return read(spec.offset + first * spec.shape.cols(), absl::MakeSpan(*out));
  };
  for (const Adapted& layer : adapted) {
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
