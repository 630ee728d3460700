#include "framework/data/tokenizer.h"

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/data/bpe_tokenizer.h"
#include "framework/data/metaspace_tokenizer.h"
#include "framework/data/tokenizer_json.h"

namespace holdfast {
namespace {

constexpr char kBytes[] = "bytes";
constexpr int64_t kTokenizerBytesMax = 100'000'000;
constexpr size_t kSettingsBytesMax = size_t{16} << 20;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    RETURN_IF_ERROR(EncodeBeginning(text, tokens).status());
    return tokens;
  }
  absl::StatusOr<TokensOfText> EncodeWithRanges(std::string_view text) const override {
    TokensOfText encoded;
    RETURN_IF_ERROR(EncodeBeginning(text, encoded.tokens).status());
    for (size_t i = 0; i < text.size(); ++i) encoded.ranges.push_back({i, i + 1});
    return encoded;
  }
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
    return text.size();
  }
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (token >= 0 && token < 256) {
        text.push_back(static_cast<char>(token));
      } else {
        text += "\xef\xbf\xbd";
      }
    }
    return text;
  }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
};

/// A file beside tokenizer.json; an empty object if it holds none, or cannot be read, as a text can be encoded without.
nlohmann::json SettingsIn(const std::string& path) {
  nlohmann::json settings = ParseJson(ReadFile(path, kSettingsBytesMax).value_or("")).value_or(nullptr);
  return settings.is_object() ? settings : nlohmann::json::object();
}

/// Of a string, or of an added token's object; "" if it is neither.
std::string ContentOf(const nlohmann::json& token) {
  const auto content = token.is_object() ? token.value("content", nlohmann::json()) : token;
  return content.is_string() ? content.get<std::string>() : "";
}

/// Those that transformers adds to its tokenizers, by the names that versions 4 and 5 both have.
std::vector<std::pair<std::string, nlohmann::json>> SpecialTokensOf(const nlohmann::json& settings) {
  std::vector<std::pair<std::string, nlohmann::json>> tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
                           "additional_special_tokens", "extra_special_tokens"}) {
    const auto found = settings.find(name);
    if (found == settings.end()) continue;
    const bool is_one = std::string_view(name).ends_with("_token");
    const nlohmann::json all = is_one ? nlohmann::json::array({*found}) : *found;
    if (!all.is_structured()) continue;
    for (const nlohmann::json& token : all) {
      if (!ContentOf(token).empty()) tokens.emplace_back(name, token);
    }
  }
  return tokens;
}

/// Null if the file is not there; no object if it cannot be read or holds none, as it decides ids.
nlohmann::json AddedTokensIn(const std::string& path) {
  const auto content = ReadFile(path, kSettingsBytesMax);
  if (absl::IsNotFound(content.status())) return nullptr;
  return ParseJson(content.value_or("")).value_or("");
}

/// As transformers 4 and 5 read them: both older files count where the newer one has no added_tokens_decoder, and the
/// special tokens of special_tokens_map.json then before its own.
TokenizerJsonSettings SettingsBeside(const std::string& tokenizer_json) {
  const std::string directory = DirectoryOf(tokenizer_json);
  nlohmann::json settings = SettingsIn(directory + "/tokenizer_config.json");
  TokenizerJsonSettings beside{.added_tokens_decoder = settings.value("added_tokens_decoder", nlohmann::json())};
  const bool older = !settings.contains("added_tokens_decoder");
  const nlohmann::json map = older ? SettingsIn(directory + "/special_tokens_map.json") : nlohmann::json::object();
  settings.update(map);
  beside.eos_token = ContentOf(settings.value("eos_token", nlohmann::json()));
  beside.special_tokens = SpecialTokensOf(settings);
  if (!older) return beside;
  beside.older_added_tokens = AddedTokensIn(directory + "/added_tokens.json");
  for (const auto& [name, token] : beside.special_tokens) {
    // Version 5.24 makes tokens of the objects in tokenizer_config.json only later.
    const bool counts = map.contains(name) ? name != "additional_special_tokens" : token.is_string();
    if (counts) beside.older_special.insert(ContentOf(token));
  }
  return beside;
}

std::string TextOf(const Tokenizer& tokenizer, int32_t token) {
  return absl::Utf8SafeCEscape(tokenizer.Decode({&token, 1}));
}

}  // namespace

std::unique_ptr<const Tokenizer> MakeTokenizer(BpeSpec spec) {
  auto steps = std::move(spec.steps);
  if (auto* metaspace = std::get_if<MetaspaceSteps>(&steps)) {
    return std::make_unique<const MetaspaceTokenizer>(std::move(spec), *metaspace);
  }
  return std::make_unique<const BpeTokenizer>(std::move(spec), std::get<ByteLevelSteps>(std::move(steps)));
}

std::string TokenizerFileOf(const std::string& name) {
  std::error_code error;
  return name != kBytes && std::filesystem::is_directory(name, error) ? absl::StrCat(name, "/tokenizer.json") : name;
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> OpenTokenizer(const std::string& name) {
  if (name == kBytes) return std::make_unique<const ByteTokenizer>();
  const std::string file = TokenizerFileOf(name);
  auto content = ReadFile(file, kTokenizerBytesMax);
  if (!content.ok()) return Annotate(content.status(), "tokenizer (\"bytes\" or a tokenizer.json)");
  auto spec = ParseTokenizerJson(*content, SettingsBeside(file));
  if (!spec.ok()) return Annotate(spec.status(), name);
  return MakeTokenizer(*std::move(spec));
}

std::string NoEndOfText(const std::string& name) {
  return absl::StrCat("the tokenizer ", name, " has no end of text",
                      name == kBytes ? ""
                                     : " (no token of a usual name, and tokenizer_config.json and "
                                       "special_tokens_map.json beside it name no eos_token that it has)");
}

absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size) {
  if (tokenizer.base_vocab_size() <= vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the tokenizer ", name, " has ", tokenizer.vocab_size(), " tokens, model.vocab_size is only ", vocab_size,
      ": from \"", TextOf(tokenizer, static_cast<int32_t>(vocab_size)), "\" on they have no embeddings"));
}

absl::Status CheckTokens(const Tokenizer& tokenizer, absl::Span<const int32_t> tokens, int64_t vocab_size) {
  for (const int32_t token : tokens) {
    if (token < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the text has token ", token, ", \"", TextOf(tokenizer, token), "\", for which the model has no embedding ",
        "(model.vocab_size: ", vocab_size, "); `resize_token_embeddings` of transformers gives it one"));
  }
  return absl::OkStatus();
}

}  // namespace holdfast
