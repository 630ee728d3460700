#include "models/families/huggingface.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "models/families/families.h"
#include "models/families/own_format.h"

namespace holdfast {
namespace {

using nlohmann::ordered_json;

constexpr char kHead[] = "lm_head.weight";
constexpr char kTokenizerKey[] = "holdfast_tokenizer", kByteTokenizer[] = "bytes";  // in config.json: tokens are bytes
constexpr char kEnds[] = "eos_token_id", kPadding[] = "pad_token_id";
constexpr char kReturnsRouters[] = "output_router_logits", kAuxiliaryLoss[] = "router_aux_loss_coef";
constexpr int kMaxConfigJsonDepth = 32;
constexpr double kMaxAuxiliaryLoss = 1e3;  // as of model.router_balance_loss

/// Null for none, and not left out: the defaults of transformers lie beyond a small vocabulary, or stand for another
/// token.
ordered_json IdOf(const std::optional<SpecialToken>& token) {
  return token.has_value() ? ordered_json(token->id) : ordered_json(nullptr);
}

/// The text of a special token in a tokenizer_config.json: "</s>", or {"content": "</s>", ...}; empty for null.
std::optional<std::string> TokenText(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  const ordered_json& token = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return token.is_string() ? token.get<std::string>() : "";
}

/// Empty if it is no JSON object.
ordered_json ParseSettings(const std::string& text) {
  ordered_json parsed = ParseJson<ordered_json>(text, kMaxConfigJsonDepth).value_or(nullptr);
  return parsed.is_object() ? parsed : ordered_json::object();
}

bool IsToken(const ordered_json& value, int64_t vocab_size) {
  return value.is_number_integer() && value >= 0 && value < vocab_size;
}

/// Of a config.json; as IdOf where it names no token of the vocabulary.
ordered_json PaddingOf(const ordered_json& config, int64_t vocab_size) {
  const ordered_json padding = config.value(kPadding, ordered_json());
  return IsToken(padding, vocab_size) ? padding : ordered_json();
}

/// The loss belongs to a run, and ours is another one (README.md). Who trains the model in transformers has its own.
void KeepAuxiliaryLoss(const ordered_json& original, ordered_json* object) {
  const ordered_json returned = original.value(kReturnsRouters, ordered_json());
  if (returned.is_boolean()) (*object)[kReturnsRouters] = returned;
  const ordered_json loss = original.value(kAuxiliaryLoss, ordered_json());
  if (loss.is_number() && loss >= 0 && loss <= kMaxAuxiliaryLoss) (*object)[kAuxiliaryLoss] = loss;
}

}  // namespace

TensorMap HuggingFaceTensorMap(const ModelConfig& config, const ParameterLayout& layout) {
  const Family* family = ExactFamily(config);
  if (family == nullptr) return OwnTensorMap(layout);
  TensorMap map = MakeTensorMap(family->Names(config), layout);
  if (config.tie_embeddings) map.front().duplicate = kHead;  // the token table comes first
  return map;
}

bool IsIgnorableHuggingFaceTensor(const ModelConfig& config, const std::string& name) {
  const Family* family = ExactFamily(config);
  return family != nullptr && (family->IsIgnorable(config, name) || (config.tie_embeddings && name == kHead));
}

std::string HuggingFaceConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer, const std::string& dtype,
                                  const std::string& original) {
  const Family* family = ExactFamily(config);
  ordered_json object = family != nullptr ? family->WriteConfig(config) : WriteOwnConfig(config);
  if (family != nullptr) {
    object["bos_token_id"] = IdOf(tokenizer.bos);
    object[kEnds] = IdOf(tokenizer.eos);
    const ordered_json was = ParseSettings(original);
    object[kPadding] = PaddingOf(was, config.vocab_size);
    const bool same_family = was.value("model_type", ordered_json()) == object["model_type"];
    if (same_family && config.num_experts > 0) KeepAuxiliaryLoss(was, &object);
  }
  if (!dtype.empty()) object["torch_dtype"] = dtype;
  if (tokenizer.bytes) object[kTokenizerKey] = kByteTokenizer;
  return object.dump(2) + "\n";
}

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(const std::string& text, const std::string& path) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, kMaxConfigJsonDepth);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  const nlohmann::json& object = *parsed;
  if (!object.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  ConfigFields in(object, path);
  HuggingFaceConfig result;
  const std::string type = in.String("model_type", "");
  RETURN_IF_ERROR(in.status());
  if (const Family* family = FindFamilyOfType(type); family != nullptr) {
    result.model = family->ReadConfig(in);
  } else if (type == kOwnFormat) {
    result.model = ReadOwnConfig(in);
  } else {
    const auto name = [](std::string* out, const Family* known) { absl::StrAppend(out, known->model_type()); };
    const std::string there_are = absl::StrCat("; there are ", absl::StrJoin(Families(), ", ", name));
    in.Unsupported("model_type", in.Has("vision_config") ? ", as it has a vision_config" + there_are : there_are);
    return in.status();
  }
  in.CheckGeneric();
  result.byte_tokenizer = in.String(kTokenizerKey, "") == kByteTokenizer;
  in.RefuseUnknown();
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(Annotate(CheckModel(result.model), path));
  return result;
}

std::string HuggingFaceGenerationConfigJson(const SavedTokenizer& tokenizer, const std::string& original) {
  ordered_json object = ParseSettings(original);
  object["bos_token_id"] = IdOf(tokenizer.bos);
  ordered_json ends = object.value(kEnds, ordered_json());
  if (!ends.is_array()) ends = ends.is_number_integer() ? ordered_json::array({ends}) : ordered_json::array();
  const ordered_json own = IdOf(tokenizer.eos);
  if (!own.is_null() && std::find(ends.begin(), ends.end(), own) == ends.end()) ends.insert(ends.begin(), own);
  object[kEnds] = ends.size() > 1 ? ends : ends.empty() ? own : ends[0];
  return object.dump(2) + "\n";
}

std::string ImpliedGenerationConfigJson(const std::string& config_json, int64_t vocab_size) {
  const ordered_json config = ParseSettings(config_json);
  ordered_json object = ordered_json::object(), ends = config.value(kEnds, ordered_json());
  if (!ends.is_array()) ends = ordered_json::array({ends});
  for (const ordered_json& end : ends) {
    if (IsToken(end, vocab_size)) object[kEnds].push_back(end);
  }
  const ordered_json padding = PaddingOf(config, vocab_size);
  if (!padding.is_null()) object[kPadding] = padding;
  return object.dump();
}

SpecialTokenTexts ReadTokenizerConfigJson(const std::string& text) {
  const ordered_json config = ParseSettings(text);
  SpecialTokenTexts texts{.bos = TokenText(config, "bos_token"),
                          .eos = TokenText(config, "eos_token"),
                          .adds_tokens = config.contains("added_tokens_decoder")};
  // What these classes are not told they do not have, and transformers 5 leaves it out. One of ours would be written by
  // chat templates that ask for it.
  const ordered_json of_class = config.value("tokenizer_class", ordered_json());
  const bool has_no_defaults = of_class == "PreTrainedTokenizerFast" || of_class == "TokenizersBackend";
  if (has_no_defaults && !texts.bos.has_value()) texts.bos = "";
  return texts;
}

std::string HuggingFaceTokenizerConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer,
                                           const std::string& original) {
  ordered_json object = ParseSettings(original);
  object.erase("auto_map");  // code of somebody else
  // The class that takes tokenizer.json as it is, by a name that versions 4 and 5 know. Those of families, which
  // transformers takes without this file, add their own special tokens beyond the vocabulary.
  object["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (tokenizer.bos.has_value()) object["bos_token"] = tokenizer.bos->text;
  if (tokenizer.eos.has_value()) object["eos_token"] = tokenizer.eos->text;
  if (!object.contains("model_max_length")) object["model_max_length"] = config.max_sequence_length;
  if (!object.contains("clean_up_tokenization_spaces")) object["clean_up_tokenization_spaces"] = false;
  return object.dump(2) + "\n";
}

}  // namespace holdfast
