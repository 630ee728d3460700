#include "framework/chat/tokenizer_settings.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/data/byte_level.h"
#include "framework/data/chat_template_bytes.h"
#include "framework/jinja/json_value.h"

namespace holdfast {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr size_t kSettingsBytesMax = 100'000'000;

/// An empty dict if the file is not there.
absl::StatusOr<Dict> ReadObject(const std::string& path) {
  const auto content = ReadFile(path, kSettingsBytesMax);
  if (absl::IsNotFound(content.status())) return Dict();
  RETURN_IF_ERROR(content.status());
  // model_max_length is 10^30 where no length was set.
  const auto parsed = jinja::ParseJson(*content, jinja::LargeNumbers::kRounded);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  if (!parsed->is_dict()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  return parsed->dict();
}

absl::Status ReadTemplateFile(const std::string& path, const std::string& name, TokenizerSettings& settings) {
  auto content = ReadFile(path, kChatTemplateBytesMax);
  if (absl::IsNotFound(content.status())) return absl::OkStatus();
  RETURN_IF_ERROR(content.status());
  if (const size_t valid = Utf8ValidLength(*content); valid < content->size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not UTF-8 at byte ", valid + 1));
  }
  settings.templates[name] = *std::move(content);
  return absl::OkStatus();
}

absl::Status ReadTemplateFiles(const std::string& directory, TokenizerSettings& settings) {
  RETURN_IF_ERROR(ReadTemplateFile(directory + "/chat_template.jinja", "default", settings));
  const std::string more = directory + "/additional_chat_templates";
  std::error_code error;
  if (!std::filesystem::is_directory(more, error)) return absl::OkStatus();
  for (const auto& entry : std::filesystem::directory_iterator(more, error)) {
    if (entry.path().extension() != ".jinja") continue;
    RETURN_IF_ERROR(ReadTemplateFile(entry.path().string(), entry.path().stem().string(), settings));
  }
  return error ? absl::UnavailableError(absl::StrCat("cannot list ", more, ": ", error.message())) : absl::OkStatus();
}

// "chat_template": a template, or a list of {"name", "template"}.
absl::Status ReadTemplatesOfConfig(const Dict& config, TokenizerSettings& settings) {
  const Value* const found = config.FindName("chat_template");
  if (found == nullptr || found->is_none()) return absl::OkStatus();
  if (found->is_string()) {
    settings.templates["default"] = found->string();
    return absl::OkStatus();
  }
  for (const Value& entry : found->is_list() ? found->items() : jinja::Items{*found}) {
    const Value* const name = entry.is_dict() ? entry.dict().FindName("name") : nullptr;
    const Value* const source = entry.is_dict() ? entry.dict().FindName("template") : nullptr;
    if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string()) {
      return absl::InvalidArgumentError(
          "chat_template of tokenizer_config.json is neither a string nor a list of {\"name\", \"template\"}");
    }
    settings.templates[name->string()] = source->string();
  }
  return absl::OkStatus();
}

// A string, or an added token's object; anything else says that there is none.
void ReadSpecialTokens(const Dict& config, TokenizerSettings& settings) {
  for (const auto& [key, value] : config.entries()) {
    if (!absl::EndsWith(key.string(), "_token")) continue;
    const Value* const text = value.is_dict() ? value.dict().FindName("content") : &value;
    if (text != nullptr && text->is_string()) {
      settings.special_tokens[key.string()] = text->string();
    } else {
      settings.special_tokens.erase(key.string());
    }
  }
}

const Value* Member(const Value* value, const char* name) {
  return value != nullptr && value->is_dict() ? value->dict().FindName(name) : nullptr;
}

// The special tokens before the text in a TemplateProcessing: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}].
void ReadPrefix(const Value& processor, TokenizerSettings& settings) {
  if (const Value* const steps = Member(&processor, "processors"); steps != nullptr && steps->is_list()) {
    for (const Value& step : steps->items()) {
      if (step.is_dict() && step.dict().FindName("processors") == nullptr) ReadPrefix(step, settings);
    }
    return;
  }
  const Value* const single = Member(&processor, "single");
  if (single == nullptr || !single->is_list()) return;
  for (const Value& piece : single->items()) {
    const Value* const name = Member(Member(&piece, "SpecialToken"), "id");
    if (name == nullptr || !name->is_string()) break;
    const Value* const ids = Member(Member(Member(&processor, "special_tokens"), name->string().c_str()), "ids");
    if (ids == nullptr || !ids->is_list()) break;
    for (const Value& id : ids->items()) {
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // of a token; CheckPrefix refuses it and beyond
      if (id.is_int()) {
        settings.prefix.push_back(id.integer() < 0 ? int32_t{kMost}
                                                   : static_cast<int32_t>(std::min(id.integer(), kMost)));
      }
    }
  }
}

// A token, or a list of them: chat models end a turn with others than a text.
void ReadEnds(const Dict& generation_config, TokenizerSettings& settings) {
  const Value* const found = generation_config.FindName("eos_token_id");
  if (found == nullptr) return;
  for (const Value& id : found->is_list() ? found->items() : jinja::Items{*found}) {
    const bool is_token = id.is_int() && id.integer() >= 0 && id.integer() <= std::numeric_limits<int32_t>::max();
    if (is_token) settings.ends.push_back(static_cast<int32_t>(id.integer()));
  }
}

}  // namespace

absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::string& directory) {
  TokenizerSettings settings;
  ASSIGN_OR_RETURN(const Dict config, ReadObject(directory + "/tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Dict legacy, ReadObject(directory + "/special_tokens_map.json"));
  ASSIGN_OR_RETURN(const Dict tokenizer, ReadObject(directory + "/tokenizer.json"));
  ASSIGN_OR_RETURN(const Dict generation, ReadObject(directory + "/generation_config.json"));
  RETURN_IF_ERROR(ReadTemplateFiles(directory, settings));
  if (settings.templates.empty()) RETURN_IF_ERROR(ReadTemplatesOfConfig(config, settings));
  ReadSpecialTokens(config, settings);
  // As transformers 4 and 5 do.
  if (config.FindName("added_tokens_decoder") == nullptr) ReadSpecialTokens(legacy, settings);
  ReadEnds(generation, settings);
  if (const Value* const processor = tokenizer.FindName("post_processor")) ReadPrefix(*processor, settings);
  return settings;
}

absl::Status CheckPrefix(const TokenizerSettings& settings, int64_t vocab_size) {
  for (const int32_t token : settings.prefix) {
    if (token < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer.json: its post_processor puts a token before a text that is beyond the vocabulary of ", vocab_size));
  }
  return absl::OkStatus();
}

void PutBefore(const std::vector<int32_t>& prefix, std::vector<int32_t>& tokens) {
  const bool is_there = tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
  if (!is_there) tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
}

absl::StatusOr<std::optional<int32_t>> EndOfText(const Tokenizer& tokenizer, const TokenizerSettings& settings) {
  const auto name = settings.special_tokens.find("eos_token");
  if (name == settings.special_tokens.end()) return tokenizer.end_of_text();
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.Encode(name->second));
  if (tokens.size() == 1) return tokens[0];
  return absl::InvalidArgumentError(
      absl::StrCat("eos_token \"", name->second, "\" of tokenizer_config.json is no token of tokenizer.json"));
}

}  // namespace holdfast
