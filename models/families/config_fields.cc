#include "models/families/config_fields.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {
namespace {

constexpr size_t kMaxProblems = 20;
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of any dimension: keeps products of two far from overflow

// What transformers writes into every config.json and what decides nothing in a forward pass: where a file comes from,
// how it is stored, what a model of another task is called, how text is generated, which tokens are special. A key that
// stands neither here nor in the file of its family is refused.
constexpr std::array kGenericKeys = {
    // origin and storage
    "transformers_version", "torch_dtype", "dtype", "use_bfloat16", "use_cache", "attn_implementation",
    "transformers.js_config", "unsloth_version", "unsloth_fixed",
    // what a call returns
    "return_dict", "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate",
    "torchscript", "tf_legacy_loss", "chunk_size_feed_forward",
    // other tasks and kinds of models
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "is_decoder",
    "tie_encoder_decoder", "cross_attention_hidden_size", "decoder_start_token_id",
    // tokens
    "tokenizer_class", "prefix", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
    // generation
    "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens"};

/// Short enough for a message.
std::string Shown(const nlohmann::json& value) {
  constexpr size_t kLongest = 80;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

std::string ConfigFields::Path(const std::string& key) const { return absl::StrCat(path_, ": ", key); }

int64_t ConfigFields::Integer(const std::string& key, int64_t min) {
  Know(key);
  if (!Has(key)) return Invalid(key, "is missing"), 1;
  const nlohmann::json& value = object_[key];
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(min) ||
      value.get<double>() > static_cast<double>(kMaxSize)) {
    return Invalid(key, absl::StrCat("is ", Shown(value), ", not a whole number from ", min, " to ", kMaxSize)), 1;
  }
  return value.get<int64_t>();
}

double ConfigFields::Number(const std::string& key, double otherwise, bool zero_allowed) {
  Know(key);
  if (!Has(key)) return otherwise;
  const nlohmann::json& value = object_[key];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (std::isfinite(number) && (number > 0 || (zero_allowed && number == 0))) return number;
  return Invalid(key, absl::StrCat("is ", Shown(value), ", not a positive number")), 1;
}

double ConfigFields::Positive(const std::string& key, double otherwise) { return Number(key, otherwise, false); }
double ConfigFields::RequiredPositive(const std::string& key) {
  if (!Has(key)) Invalid(key, "is missing");
  return Number(key, 1, false);
}
double ConfigFields::NotNegative(const std::string& key, double otherwise) { return Number(key, otherwise, true); }

std::vector<double> ConfigFields::Numbers(const std::string& key) {
  Know(key);
  if (!Has(key)) return {};
  const nlohmann::json& values = object_[key];
  const auto is_positive = [](const nlohmann::json& value) {
    return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
  };
  if (values.is_array() && std::all_of(values.begin(), values.end(), is_positive)) {
    return values.get<std::vector<double>>();
  }
  return Invalid(key, absl::StrCat("is ", Shown(values), ", not a list of positive numbers")), std::vector<double>();
}

bool ConfigFields::Bool(const std::string& key, bool otherwise) {
  Know(key);
  if (!Has(key)) return otherwise;
  if (!object_[key].is_boolean()) {
    return Invalid(key, absl::StrCat("is ", Shown(object_[key]), ", neither true nor false")), otherwise;
  }
  return object_[key].get<bool>();
}

std::string ConfigFields::String(const std::string& key, const std::string& otherwise) {
  Know(key);
  if (!Has(key)) return otherwise;
  if (!object_[key].is_string())
    return Invalid(key, absl::StrCat("is ", Shown(object_[key]), ", not a string")), otherwise;
  return object_[key].get<std::string>();
}

void ConfigFields::Only(const std::string& key, std::initializer_list<nlohmann::json> values) {
  Know(key);
  if (!Has(key) || std::find(values.begin(), values.end(), object_[key]) != values.end()) return;
  const auto shown = [](std::string* out, const nlohmann::json& value) { *out += Shown(value); };
  Unsupported(key, values.size() == 0 ? "" : absl::StrCat("; it may be ", absl::StrJoin(values, " or ", shown)));
}

std::optional<std::vector<std::string>> ConfigFields::Strings(const std::string& key,
                                                              std::initializer_list<const char*> known) {
  Know(key);
  if (!Has(key)) return std::nullopt;
  const nlohmann::json& values = object_[key];
  const auto is_known = [&](const nlohmann::json& value) {
    return std::any_of(known.begin(), known.end(), [&](const char* name) { return value == name; });
  };
  if (!values.is_array() || !std::all_of(values.begin(), values.end(), is_known)) return Unsupported(key), std::nullopt;
  return values.get<std::vector<std::string>>();
}

void ConfigFields::CheckGeneric() {
  Ignore(kGenericKeys);
  Only("is_encoder_decoder", {false});
  Only("add_cross_attention", {false});
  Only("pruned_heads", {nlohmann::json::object()});
  if (!known_.contains("quantization_config")) Only("quantization_config", {});
}

void ConfigFields::Invalid(const std::string& key, const std::string& what) {
  Add(absl::StatusCode::kInvalidArgument, key, absl::StrCat(" ", what));
}

void ConfigFields::Unsupported(const std::string& key, const std::string& what_is) {
  const std::string value = object_.contains(key) ? Shown(object_[key]) : "missing";
  Add(absl::StatusCode::kUnimplemented, key, absl::StrCat(" = ", value, " is not supported", what_is));
}

void ConfigFields::RefuseUnknown() {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || key.starts_with('_') || known_.contains(key)) continue;
    Add(absl::StatusCode::kUnimplemented, Shown(key),
        absl::StrCat(" = ", Shown(value), " is not known: if it changes nothing that the model computes, remove it"));
  }
}

void ConfigFields::Add(absl::StatusCode code, const std::string& key, const std::string& what) {
  Add(absl::Status(code, absl::StrCat(path_, ": ", key, what)));
}

void ConfigFields::Add(const absl::Status& status) {
  if (code_ == absl::StatusCode::kOk) code_ = status.code();
  if (!status.ok() && problems_.size() < kMaxProblems) problems_.emplace_back(status.message());
}

absl::Status ConfigFields::status() const { return absl::Status(code_, absl::StrJoin(problems_, "\n")); }

std::string FirstKey(std::initializer_list<KeyCheck> checks) {
  for (const KeyCheck& check : checks) {
    if (check.hit && !check.key.empty()) return check.key;
  }
  return "";
}

}  // namespace holdfast
