#include "framework/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "framework/base/json_depth.h"
#include "framework/base/status.h"
#include "framework/data/byte_level.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

using Json = nlohmann::json;
using Ids = absl::flat_hash_map<std::string, int32_t>;

constexpr int kDepthMax = 64;
constexpr int64_t kVocabularyMax = int64_t{1} << 22;  // the largest in use have about 2^18
constexpr size_t kAddedTokenBytesMax = 4096;          // a text full of beginnings of one costs this much a byte

// GPT-2's, used by ByteLevel itself unless "use_regex" is false (Radford et al. 2019, encoder.py).
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// In the order in which they are looked for.
constexpr std::array kEndOfTextNames = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
constexpr std::array kBeginOfTextNames = {"<|begin_of_text|>", "<s>", "<bos>"};

bool IsAbsent(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ||
         (found->is_string() && found->get_ref<const std::string&>().empty());
}

absl::Status Unsupported(const std::string& what) {
  return absl::UnimplementedError(absl::StrCat(what, " is not supported; byte-level BPE as in GPT-2 and Llama 3 is"));
}

std::string TypeOf(const Json& object) { return object.value("type", std::string("without a type")); }

absl::StatusOr<int32_t> ParseId(const Json& value, const std::string& token) {
  const bool in_range = value.is_number_integer() && value.get<int64_t>() >= 0 &&
                        value.get<int64_t>() < kVocabularyMax &&
                        !(value.is_number_unsigned() && value.get<uint64_t>() >= uint64_t{kVocabularyMax});
  if (in_range) return value.get<int32_t>();
  return absl::InvalidArgumentError(
      absl::StrCat("id of token ", Json(token).dump(), " is ", value.dump(), ", not in [0, ", kVocabularyMax, ")"));
}

absl::Status AddToken(const std::string& name, int32_t id, std::string bytes, BpeSpec& spec) {
  if (static_cast<size_t>(id) >= spec.token_bytes.size()) spec.token_bytes.resize(id + 1);
  if (spec.token_bytes[id].has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("id ", id, " is given to two tokens, one of them ", Json(name).dump()));
  }
  spec.token_bytes[id] = std::move(bytes);
  return absl::OkStatus();
}

absl::Status ParseVocabulary(const Json& vocabulary, Ids& ids, BpeSpec& spec) {
  for (const auto& [name, value] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t id, ParseId(value, name));
    RETURN_IF_ERROR(AddToken(name, id, ByteLevelToBytes(name).value_or(name), spec));
    ids[name] = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(ByteLevelCharacter(static_cast<uint8_t>(byte)));
    if (found == ids.end()) {
      return Unsupported(absl::StrCat("a vocabulary without a token for byte ", byte, " (not byte-level BPE?)"));
    }
    spec.model.SetByteToken(static_cast<uint8_t>(byte), found->second);
  }
  return absl::OkStatus();
}

// Both forms: "left right" and ["left", "right"].
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected \"left right\" or [\"left\", \"right\"], not ", merge.dump()));
}

absl::Status ParseMerges(const Json& merges, const Ids& ids, BpeSpec& spec) {
  if (!merges.is_array()) return absl::InvalidArgumentError("merges: not an array");
  int32_t rank = 0;
  for (const Json& merge : merges) {
    auto pair = ParsePair(merge);
    if (!pair.ok()) return Annotate(pair.status(), absl::StrCat("merge ", rank));
    const auto left = ids.find(pair->first), right = ids.find(pair->second),
               merged = ids.find(pair->first + pair->second);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", rank, ": ", merge.dump(), ": a part or the result is not in the vocabulary"));
    }
    spec.model.AddMerge(left->second, right->second, rank++, merged->second);
  }
  return absl::OkStatus();
}

absl::Status ParseModel(const Json& model, Ids& ids, BpeSpec& spec) {
  if (model.value("type", "BPE") != "BPE") return Unsupported("model " + TypeOf(model));
  if (!IsAbsent(model, "dropout") && model.at("dropout") != 0) return Unsupported("dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsAbsent(model, key)) return Unsupported(key);
  }
  if (!IsAbsent(model, "byte_fallback") && model.at("byte_fallback").get<bool>()) return Unsupported("byte_fallback");
  if (!model.at("vocab").is_object()) return absl::InvalidArgumentError("vocab: not an object");
  RETURN_IF_ERROR(ParseVocabulary(model.at("vocab"), ids, spec));
  RETURN_IF_ERROR(ParseMerges(model.at("merges"), ids, spec));
  if (IsAbsent(model, "ignore_merges") || !model.at("ignore_merges").get<bool>()) return absl::OkStatus();
  for (const auto& [name, id] : ids) {
    if (const auto bytes = ByteLevelToBytes(name)) spec.model.AddWholeWord(*bytes, id);
  }
  return absl::OkStatus();
}

/// Those with "normalized": false, and the others.
struct AddedEntries {
  std::vector<AddedTokens::Entry> first, second;
};

absl::Status ParseAddedToken(const Json& entry, Ids& ids, BpeSpec& spec, AddedEntries& added) {
  const auto content = entry.at("content").get<std::string>();
  if (content.size() > kAddedTokenBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token of ", content.size(), " bytes; at most ", kAddedTokenBytesMax));
  }
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    if (entry.value(flag, false)) return Unsupported(absl::StrCat(flag, " of ", Json(content).dump()));
  }
  ASSIGN_OR_RETURN(const int32_t id, ParseId(entry.at("id"), content));
  if (const auto known = ids.find(content); known == ids.end()) {
    RETURN_IF_ERROR(AddToken(content, id, content, spec));
    ids[content] = id;
  } else if (known->second != id) {
    return absl::InvalidArgumentError(
        absl::StrCat(Json(content).dump(), " has id ", id, ", but ", known->second, " in the vocabulary"));
  } else {
    spec.token_bytes[id] = content;
  }
  const bool normalized = entry.value("normalized", !entry.value("special", false));
  (normalized ? added.second : added.first).push_back({content, id});
  return absl::OkStatus();
}

absl::Status ParseByteLevel(const Json& step, BpeSpec& spec) {
  spec.add_prefix_space = step.value("add_prefix_space", true);
  spec.splits_before_prefix_space = static_cast<int>(spec.splits.size());
  if (!step.value("use_regex", true)) return absl::OkStatus();
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Pattern));
  spec.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

absl::Status ParseSplit(const Json& step, BpeSpec& spec) {
  if (step.at("behavior") != "Isolated") return Unsupported("Split behavior " + step.at("behavior").dump());
  if (step.value("invert", false)) return Unsupported("Split with invert");
  const Json& pattern = step.at("pattern");
  if (!pattern.contains("Regex")) return Unsupported("Split pattern " + pattern.dump());
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern.at("Regex").get<std::string>()));
  spec.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

absl::Status ParseDigits(const Json& step, BpeSpec& spec) {
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"));
  spec.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

absl::Status ParsePreTokenizer(const Json& pre_tokenizer, BpeSpec& spec) {
  const bool is_sequence = TypeOf(pre_tokenizer) == "Sequence";
  const Json steps = is_sequence ? pre_tokenizer.at("pretokenizers") : Json::array({pre_tokenizer});
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string type = TypeOf(steps[i]);
    const bool is_last = i + 1 == steps.size();
    if (is_last != (type == "ByteLevel")) return Unsupported("a sequence that does not end with its only ByteLevel");
    if (type == "ByteLevel") {
      RETURN_IF_ERROR(ParseByteLevel(steps[i], spec));
    } else if (type == "Split") {
      RETURN_IF_ERROR(ParseSplit(steps[i], spec));
    } else if (type == "Digits") {
      RETURN_IF_ERROR(ParseDigits(steps[i], spec));
    } else {
      return Unsupported(type);
    }
  }
  return steps.empty() ? Unsupported("an empty sequence") : absl::OkStatus();
}

absl::Status ParseNormalizer(const Json& root) {
  if (IsAbsent(root, "normalizer")) return absl::OkStatus();
  const Json& normalizer = root.at("normalizer");
  const bool is_empty_sequence = TypeOf(normalizer) == "Sequence" && normalizer.at("normalizers").empty();
  return is_empty_sequence ? absl::OkStatus() : Unsupported(TypeOf(normalizer));
}

absl::Status ParseDecoder(const Json& root) {
  if (IsAbsent(root, "decoder") || TypeOf(root.at("decoder")) == "ByteLevel") return absl::OkStatus();
  return Unsupported(TypeOf(root.at("decoder")));
}

// Runs `parse` and says which section its error, or the JSON library's exception, is about.
template <typename Parse>
absl::Status Section(const char* name, Parse parse) {
  try {
    return Annotate(parse(), name);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", error.what()));
  }
}

absl::Status ParseAddedTokens(const Json& root, Ids& ids, BpeSpec& spec) {
  if (IsAbsent(root, "added_tokens")) return absl::OkStatus();
  AddedEntries added;
  for (const Json& entry : root.at("added_tokens")) RETURN_IF_ERROR(ParseAddedToken(entry, ids, spec, added));
  spec.added_first = AddedTokens(std::move(added.first));
  spec.added_second = AddedTokens(std::move(added.second));
  return absl::OkStatus();
}

std::optional<int32_t> FirstOf(absl::Span<const char* const> names, const Ids& ids) {
  for (const char* name : names) {
    if (const auto found = ids.find(name); found != ids.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(const std::string& content) {
  if (JsonNestsDeeperThan(content, kDepthMax)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ", kDepthMax));
  }
  Json root;
  RETURN_IF_ERROR(Section("not JSON", [&] {
    root = Json::parse(content);
    return absl::OkStatus();
  }));
  if (!root.is_object()) return absl::InvalidArgumentError("not a JSON object");
  BpeSpec spec;
  Ids ids;
  RETURN_IF_ERROR(Section("model", [&] { return ParseModel(root.at("model"), ids, spec); }));
  RETURN_IF_ERROR(Section("added_tokens", [&] { return ParseAddedTokens(root, ids, spec); }));
  RETURN_IF_ERROR(Section("normalizer", [&] { return ParseNormalizer(root); }));
  RETURN_IF_ERROR(Section("pre_tokenizer", [&] { return ParsePreTokenizer(root.at("pre_tokenizer"), spec); }));
  RETURN_IF_ERROR(Section("decoder", [&] { return ParseDecoder(root); }));
  spec.end_of_text = FirstOf(kEndOfTextNames, ids);
  spec.begin_of_text = FirstOf(kBeginOfTextNames, ids);
  if (!spec.begin_of_text.has_value()) spec.begin_of_text = spec.end_of_text;
  return spec;
}

std::string ByteTokenizerJson() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[ByteLevelCharacter(static_cast<uint8_t>(byte))] = byte;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json root = {{"version", "1.0"},
                     {"added_tokens", Json::array()},
                     {"pre_tokenizer", byte_level},
                     {"decoder", byte_level},
                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  return root.dump(2) + "\n";
}

}  // namespace holdfast
