#include "models/runtime/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "checkpoint/model_directory.h"
#include "framework/base/files.h"
#include "framework/base/glob.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "models/families/config_fields.h"
#include "models/families/huggingface.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr int kMaxConfigDepth = 16;
constexpr double kMaxAlpha = 1e9;
constexpr size_t kMaxPatterns = 4096;
constexpr int64_t kMaxPatternRank = int64_t{1} << 24;

std::string PathOf(const std::string& directory) { return absl::StrCat(directory, "/", kAdapterConfigFile); }

/// "Llama-3.2-1B" of "meta-llama/Llama-3.2-1B", of any directory of that name, and of its place in the hub's cache,
/// "models--meta-llama--Llama-3.2-1B/snapshots/...".
std::string NameOfModel(const std::string& place) {
  std::error_code error;
  std::string name;
  for (const std::filesystem::path& part : std::filesystem::absolute(place, error).lexically_normal()) {
    if (part.empty()) continue;  // behind a slash at the end
    name = part.string();
    if (absl::StartsWith(name, "models--")) return name.substr(name.rfind("--") + 2);
  }
  return name;
}

std::string LastWord(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// As adapter_config.json names modules: by their last words, or whole where others end in one of these, too.
std::vector<std::string> TargetModules(const std::vector<AdaptedLayer>& adapted, const TensorMap& base) {
  std::set<std::string> modules, words;
  for (const AdaptedLayer& layer : adapted) {
    if (!layer.parameter.empty()) continue;
    modules.insert(layer.module);
    words.insert(LastWord(layer.module));
  }
  for (const ExternalTensor& tensor : base) {
    const std::string module(absl::StripSuffix(tensor.name, kWeightSuffix));
    if (words.contains(LastWord(module)) && !modules.contains(module)) return {modules.begin(), modules.end()};
  }
  return {words.begin(), words.end()};
}

std::set<std::string> TargetParameters(const std::vector<AdaptedLayer>& adapted) {
  std::set<std::string> parameters;
  for (const AdaptedLayer& layer : adapted) {
    if (!layer.parameter.empty()) parameters.insert(layer.parameter);
  }
  return parameters;
}

absl::StatusOr<json> ReadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  absl::StatusOr<json> object = ParseJson(text, kMaxConfigDepth);
  if (!object.ok()) return Annotate(object.status(), path);
  if (!object->is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  return object;
}

/// Null and what is left out, false and empty are one.
bool IsSet(const json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  return !((value.is_object() || value.is_array() || value.is_string()) && value.empty());
}

/// Keys that say what is in the tensors' names anyway, or nothing about what adapters compute.
bool IsUnderstood(const std::string& key) {
  static const std::set<std::string> keys = {
      "peft_type",        "task_type",      "base_model_name_or_path", "r",
      "lora_alpha",       "rank_pattern",   "alpha_pattern",           "lora_dropout",
      "use_rslora",       "target_modules", "target_parameters",       "exclude_modules",
      "auto_mapping",     "fan_in_fan_out", "inference_mode",          "revision",
      "peft_version",     "megatron_core",  "layers_pattern",          "layers_to_transform",
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

double AlphaIn(ConfigFields& in, const std::string& key, const json& value) {
  const double alpha = value.is_number() ? value.get<double>() : kMaxAlpha * 2;
  if (std::abs(alpha) <= kMaxAlpha) return alpha;
  return in.Invalid(key, absl::StrCat("is ", value.dump(), ", not a number from ", -kMaxAlpha, " to ", kMaxAlpha)), 1;
}

double ReadAlpha(ConfigFields& in) {
  const char* const key = "lora_alpha";
  if (!in.Has(key)) return in.Invalid(key, "is missing"), 1;
  return AlphaIn(in, key, in[key]);
}

/// PEFT's patterns are regular expressions of Python. Of these the ones that are names with any characters in them.
std::optional<std::string> GlobOf(absl::string_view expression) {
  std::string glob;
  while (!expression.empty()) {
    if (absl::ConsumePrefix(&expression, ".*")) {
      glob += '*';
    } else if (absl::ConsumePrefix(&expression, ".")) {
      glob += '?';
    } else {
      const bool escaped = absl::ConsumePrefix(&expression, "\\");
      const char c = expression.empty() ? '\0' : expression[0];
      const bool plain = c == '_' || c == '-' || (escaped ? c == '.' : absl::ascii_isalnum(static_cast<uint8_t>(c)));
      if (!plain) return std::nullopt;
      glob += c;
      expression.remove_prefix(1);
    }
  }
  return glob;
}

std::vector<AdapterPattern> ReadPatterns(ConfigFields& in, const std::string& key,
                                         double (*value_of)(ConfigFields&, const std::string&, const json&)) {
  std::vector<AdapterPattern> patterns;
  if (!in.Has(key) || !IsSet(in[key])) return patterns;
  if (!in[key].is_object() || in[key].size() > kMaxPatterns) {
    return in.Invalid(key, absl::StrCat("is no object of at most ", kMaxPatterns, " patterns")), patterns;
  }
  for (const auto& [text, value] : in[key].items()) {
    absl::string_view expression = text;
    const bool whole = absl::ConsumePrefix(&expression, "^");
    const std::optional<std::string> glob = GlobOf(expression);
    if (!glob.has_value()) {
      in.Unsupported(key, absl::StrCat(": ", json(text).dump(), " is more than a name with . and .*"));
      return patterns;
    }
    patterns.push_back({.text = text,
                        .glob = *glob,
                        .whole = whole,
                        .value = value_of(in, absl::StrCat(key, " ", json(text).dump()), value)});
  }
  return patterns;
}

double RankIn(ConfigFields& in, const std::string& key, const json& value) {
  if (value.is_number_integer() && value >= 1 && value <= kMaxPatternRank) return value.get<double>();
  return in.Invalid(key, absl::StrCat("is ", value.dump(), ", not a whole number from 1 to ", kMaxPatternRank)), 1;
}

bool Matches(const AdapterPattern& pattern, const std::string& name) {
  return MatchesGlob(pattern.glob, name) || (!pattern.whole && MatchesGlob(absl::StrCat("*.", pattern.glob), name));
}

absl::StatusOr<double> ValueFor(const std::string& name, const std::vector<AdapterPattern>& patterns,
                                double otherwise) {
  const AdapterPattern* first = nullptr;
  for (const AdapterPattern& pattern : patterns) {
    if (!Matches(pattern, name)) continue;
    if (first != nullptr && first->value != pattern.value) {
      return absl::InvalidArgumentError(absl::StrCat("the patterns ", json(first->text).dump(), " and ",
                                                     json(pattern.text).dump(), " say different things of ", name));
    }
    first = &pattern;
  }
  return first == nullptr ? otherwise : first->value;
}

std::vector<std::string> ReadTargetParameters(ConfigFields& in) {
  const char* const key = "target_parameters";
  if (!in.Has(key) || !IsSet(in[key])) return {};
  const json& names = in[key];
  if (names.is_array() && std::all_of(names.begin(), names.end(), [](const json& name) { return name.is_string(); })) {
    return names.get<std::vector<std::string>>();
  }
  return in.Invalid(key, "is no list of names"), std::vector<std::string>();
}

}  // namespace

absl::StatusOr<AdapterKind> ReadAdapterKind(const std::string& directory) {
  const std::string path = PathOf(directory);
  ASSIGN_OR_RETURN(const json config, ReadConfig(path));
  RETURN_IF_ERROR(CheckConfig(config, path));
  ConfigFields in(config, path);
  AdapterKind kind{.path = path,
                   .rank = in.Size("r"),
                   .alpha = ReadAlpha(in),
                   .rslora = in.Bool("use_rslora", false),
                   .ranks = ReadPatterns(in, "rank_pattern", RankIn),
                   .alphas = ReadPatterns(in, "alpha_pattern", AlphaIn),
                   .parameters = ReadTargetParameters(in)};
  RETURN_IF_ERROR(in.status());
  return kind;
}

absl::StatusOr<RankAndScale> AdapterKind::Of(const std::string& name) const {
  const auto rank_for = ValueFor(name, ranks, static_cast<double>(rank)), alpha_for = ValueFor(name, alphas, alpha);
  if (!rank_for.ok()) return Annotate(rank_for.status(), absl::StrCat(path, ": rank_pattern"));
  if (!alpha_for.ok()) return Annotate(alpha_for.status(), absl::StrCat(path, ": alpha_pattern"));
  const double scale = *alpha_for / (rslora ? std::sqrt(*rank_for) : *rank_for);
  return RankAndScale{.rank = static_cast<int64_t>(*rank_for), .scale = static_cast<float>(scale)};
}

bool AdapterKind::IsForParameter(const std::string& name) const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const std::string& target) { return target == name || absl::EndsWith(name, "." + target); });
}

absl::StatusOr<bool> HoldsAdapter(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(PathOf(directory), ignored)) return false;
  if (!HoldsConfigAndWeights(directory)) return true;
  return absl::InvalidArgumentError(absl::StrCat(directory, " holds a model (", kConfigFile, ") and adapters (",
                                                 kAdapterConfigFile, "): move one of them to a directory of its own"));
}

absl::StatusOr<std::string> BaseModelOf(const std::string& directory) {
  ASSIGN_OR_RETURN(const json config, ReadConfig(PathOf(directory)));
  const json base = config.value("base_model_name_or_path", json());
  if (base.is_string() && !base.get<std::string>().empty()) return base.get<std::string>();
  return absl::InvalidArgumentError(absl::StrCat(PathOf(directory), ": base_model_name_or_path names no directory"));
}

bool MayBeModel(const std::string& base, const std::string& directory) {
  std::error_code error;
  return std::filesystem::equivalent(base, directory, error) ||
         absl::EqualsIgnoreCase(NameOfModel(base), NameOfModel(directory));
}

std::string AdapterConfigJson(const Config& config, const std::vector<AdaptedLayer>& adapted) {
  const TensorMap base = HuggingFaceTensorMap(config.model, TransformerLayout(config.model));
  const bool transposed = std::any_of(base.begin(), base.end(), [](const ExternalTensor& t) {
    return t.transposed && absl::EndsWith(t.name, kWeightSuffix);  // of a module
  });
  const std::set<std::string> parameters = TargetParameters(adapted);
  std::error_code error;
  const auto absolute = std::filesystem::absolute(config.train.init_from, error);
  nlohmann::ordered_json object = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", error ? config.train.init_from : absolute.lexically_normal().string()},
      {"r", config.lora.rank},
      {"lora_alpha", config.lora.alpha},
      {"lora_dropout", parameters.empty() ? config.lora.dropout : 0.0},  // PEFT has none for parameters
      {"use_rslora", config.lora.rslora},
      {"target_modules", TargetModules(adapted, base)},
      {"fan_in_fan_out", transposed},
      {"bias", "none"},
      {"inference_mode", true}};
  if (!parameters.empty()) object["target_parameters"] = parameters;
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";  // a path may be no UTF-8
}

}  // namespace holdfast
