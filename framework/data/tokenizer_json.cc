#include "framework/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/data/byte_level.h"
#include "framework/data/metaspace_tokenizer.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;
using Ids = absl::flat_hash_map<std::string, int32_t>;

constexpr int64_t kVocabularyMax = int64_t{1} << 22;  // the largest in use have about 2^18
constexpr size_t kAddedTokenBytesMax = 4096;          // a text full of beginnings of one costs this much a byte

// GPT-2's, used by ByteLevel itself unless "use_regex" is false (Radford et al. 2019, encoder.py).
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// In the order in which they are looked for. Gemma's vocabulary also has <s> and </s>, the tags of HTML.
constexpr std::array kEndOfTextNames = {"<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"};
constexpr std::array kBeginOfTextNames = {"<|begin_of_text|>", "<|startoftext|>", "<bos>", "<s>",
                                          "<｜begin▁of▁sentence｜>"};

bool IsAbsent(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ||
         (found->is_string() && found->get_ref<const std::string&>().empty());
}

absl::Status Unsupported(const std::string& what) {
  return absl::UnimplementedError(absl::StrCat(
      what, " is not supported; byte-level BPE as in Llama 3, and BPE with byte_fallback as in Llama 2, are"));
}

bool IsTrue(const Json& object, const char* key) { return !IsAbsent(object, key) && object.at(key).get<bool>(); }

std::string TypeOf(const Json& object) { return object.value("type", std::string("without a type")); }

// A step's type, and what it is told.
std::string NameOf(const Json& step) {
  return step.size() == 1 ? TypeOf(step) : absl::StrCat(TypeOf(step), " (", step.dump(), ")");
}

// "<0x0A>" is the token of a byte that no character of its own stands for.
std::optional<uint8_t> ByteOfName(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  return error == std::errc() && end == name.data() + 5 ? std::optional(byte) : std::nullopt;
}

std::string SpellMetaspace(const std::string& name) {
  if (const auto byte = ByteOfName(name)) return std::string(1, static_cast<char>(*byte));
  return absl::StrReplaceAll(name, {{std::string(kSpaceMark), " "}});
}

// Whether a ▁ comes behind something else in it.
bool JoinsWords(const std::string& merged) {
  size_t text = 0;
  while (merged.compare(text, kSpaceMark.size(), kSpaceMark) == 0) text += kSpaceMark.size();
  return merged.find(kSpaceMark, text) != std::string::npos;
}

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

// The bytes that a token spells, by the kind of model.
using Spelling = std::string (*)(const std::string& name);

absl::Status ParseVocabulary(const Json& vocabulary, Spelling spelling, Ids& ids, BpeSpec& spec) {
  for (const auto& [name, value] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t id, ParseId(value, name));
    RETURN_IF_ERROR(AddToken(name, id, spelling(name), spec));
    ids[name] = id;
  }
  return absl::OkStatus();
}

absl::Status SetByteTokens(const Ids& ids, const std::function<std::string(uint8_t)>& name_of, BpeSpec& spec) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(name_of(static_cast<uint8_t>(byte)));
    if (found == ids.end()) return Unsupported(absl::StrCat("a vocabulary without a token for byte ", byte));
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
  auto* const metaspace = std::get_if<MetaspaceSteps>(&spec.steps);
  int32_t rank = 0;
  for (const Json& merge : merges) {
    auto pair = ParsePair(merge);
    if (!pair.ok()) return Annotate(pair.status(), absl::StrCat("merge ", rank));
    const std::string whole = pair->first + pair->second;
    const auto left = ids.find(pair->first), right = ids.find(pair->second), merged = ids.find(whole);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", rank, ": ", merge.dump(), ": a part or the result is not in the vocabulary"));
    }
    if (metaspace != nullptr) {
      for (const std::string& name : {pair->first, pair->second, whole}) {
        if (ByteOfName(name).has_value()) return Unsupported(absl::StrCat("a merge with ", Json(name).dump()));
      }
      metaspace->joins_words |= JoinsWords(whole);
    }
    spec.model.AddMerge(left->second, right->second, rank++, merged->second);
  }
  return absl::OkStatus();
}

absl::Status ParseByteLevelModel(const Json& model, Ids& ids, BpeSpec& spec) {
  const Spelling spelling = [](const std::string& name) { return ByteLevelToBytes(name).value_or(name); };
  RETURN_IF_ERROR(ParseVocabulary(model.at("vocab"), spelling, ids, spec));
  RETURN_IF_ERROR(SetByteTokens(ids, ByteLevelCharacter, spec));
  RETURN_IF_ERROR(ParseMerges(model.at("merges"), ids, spec));
  if (!IsTrue(model, "ignore_merges")) return absl::OkStatus();
  for (const auto& [name, id] : ids) {
    if (const auto bytes = ByteLevelToBytes(name)) spec.model.AddWholeWord(*bytes, id);
  }
  return absl::OkStatus();
}

absl::Status ParseMetaspaceModel(const Json& model, Ids& ids, BpeSpec& spec) {
  spec.steps = MetaspaceSteps();
  RETURN_IF_ERROR(ParseVocabulary(model.at("vocab"), SpellMetaspace, ids, spec));
  if (!ids.contains(std::string(kSpaceMark))) return Unsupported("a vocabulary without a token for \u2581");
  const auto name_of = [&](uint8_t byte) {
    const std::string character(1, static_cast<char>(byte));
    return byte < 0x80 && ids.contains(character) ? character : absl::StrFormat("<0x%02X>", byte);
  };
  RETURN_IF_ERROR(SetByteTokens(ids, name_of, spec));
  for (const auto& [name, id] : ids) {
    if (name.size() > 1 && Utf8CharacterLength(name) == name.size()) spec.model.SetCharacterToken(name, id);
  }
  RETURN_IF_ERROR(ParseMerges(model.at("merges"), ids, spec));
  if (!IsTrue(model, "ignore_merges")) return absl::OkStatus();
  for (const auto& [name, id] : ids) spec.model.AddWholeWord(name, id);
  std::get<MetaspaceSteps>(spec.steps).joins_words = true;  // what is no word as a whole is to be seen as a whole
  return absl::OkStatus();
}

absl::Status ParseModel(const Json& model, Ids& ids, BpeSpec& spec) {
  if (model.value("type", "BPE") != "BPE") return Unsupported("model " + TypeOf(model));
  if (!IsAbsent(model, "dropout") && model.at("dropout") != 0) return Unsupported("dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsAbsent(model, key)) return Unsupported(key);
  }
  if (!model.at("vocab").is_object()) return absl::InvalidArgumentError("vocab: not an object");
  return IsTrue(model, "byte_fallback") ? ParseMetaspaceModel(model, ids, spec) : ParseByteLevelModel(model, ids, spec);
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
  ASSIGN_OR_RETURN(const int32_t id, ParseId(entry.at("id"), content));
  const bool is_metaspace = std::holds_alternative<MetaspaceSteps>(spec.steps);
  const std::string spelled = is_metaspace ? absl::StrReplaceAll(content, {{std::string(kSpaceMark), " "}}) : content;
  if (const auto known = ids.find(content); known == ids.end()) {
    RETURN_IF_ERROR(AddToken(content, id, spelled, spec));
    ids[content] = id;
  } else if (known->second != id) {
    return absl::InvalidArgumentError(
        absl::StrCat(Json(content).dump(), " has id ", id, ", but ", known->second, " in the vocabulary"));
  } else {
    spec.token_bytes[id] = spelled;
  }
  const bool normalized = entry.value("normalized", !entry.value("special", false));
  (normalized ? added.second : added.first)
      .push_back(
          {content, id, entry.value("lstrip", false), entry.value("rstrip", false), entry.value("single_word", false)});
  return absl::OkStatus();
}

absl::Status ParseByteLevel(const Json& step, ByteLevelSteps& steps) {
  steps.add_prefix_space = step.value("add_prefix_space", true);
  steps.splits_before_prefix_space = static_cast<int>(steps.splits.size());
  if (!step.value("use_regex", true)) return absl::OkStatus();
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Pattern));
  steps.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

absl::Status ParseSplit(const Json& step, ByteLevelSteps& steps) {
  if (step.at("behavior") != "Isolated") return Unsupported("Split behavior " + step.at("behavior").dump());
  if (step.value("invert", false)) return Unsupported("Split with invert");
  const Json& pattern = step.at("pattern");
  if (!pattern.contains("Regex")) return Unsupported("Split pattern " + pattern.dump());
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern.at("Regex").get<std::string>()));
  steps.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

absl::Status ParseDigits(const Json& step, ByteLevelSteps& steps) {
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"));
  steps.splits.push_back(std::move(regex));
  return absl::OkStatus();
}

// A section's only step, or those of its sequence.
Json StepsOf(const Json& root, const char* section, const char* of_sequence) {
  if (IsAbsent(root, section)) return Json::array();
  const Json& step = root.at(section);
  return TypeOf(step) == "Sequence" ? step.at(of_sequence) : Json::array({step});
}

absl::Status ParseSplits(const Json& pre_tokenizer, ByteLevelSteps& into) {
  const bool is_sequence = TypeOf(pre_tokenizer) == "Sequence";
  const Json steps = is_sequence ? pre_tokenizer.at("pretokenizers") : Json::array({pre_tokenizer});
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string type = TypeOf(steps[i]);
    const bool is_last = i + 1 == steps.size();
    if (is_last != (type == "ByteLevel")) return Unsupported("a sequence that does not end with its only ByteLevel");
    if (type == "ByteLevel") {
      RETURN_IF_ERROR(ParseByteLevel(steps[i], into));
    } else if (type == "Split") {
      RETURN_IF_ERROR(ParseSplit(steps[i], into));
    } else if (type == "Digits") {
      RETURN_IF_ERROR(ParseDigits(steps[i], into));
    } else {
      return Unsupported(NameOf(steps[i]));
    }
  }
  return steps.empty() ? Unsupported("an empty sequence") : absl::OkStatus();
}

bool IsReplace(const Json& step, std::string_view pattern, std::string_view content) {
  return TypeOf(step) == "Replace" && step.at("pattern") == Json{{"String", pattern}} && step.at("content") == content;
}

absl::Status ParseNormalizer(const Json& root, BpeSpec& spec) {
  auto* const metaspace = std::get_if<MetaspaceSteps>(&spec.steps);
  bool prepends = false;
  for (const Json& step : StepsOf(root, "normalizer", "normalizers")) {
    if (auto* const bytes = std::get_if<ByteLevelSteps>(&spec.steps); bytes != nullptr && TypeOf(step) == "NFC") {
      bytes->is_nfc = true;
      continue;
    }
    if (metaspace != nullptr && IsReplace(step, " ", kSpaceMark)) {
      metaspace->is_normalizer = true;
    } else if (metaspace != nullptr && TypeOf(step) == "Prepend" && step.at("prepend") == kSpaceMark && !prepends) {
      prepends = true;
      metaspace->prefix = MetaspaceSteps::Prefix::kAlways;
    } else {
      return Unsupported(NameOf(step));
    }
  }
  return prepends && !metaspace->is_normalizer ? Unsupported("Prepend without Replace") : absl::OkStatus();
}

// A missing "prepend_scheme" is "always", unless an older file says otherwise.
absl::StatusOr<MetaspaceSteps::Prefix> ParsePrependScheme(const Json& step) {
  const std::string scheme = step.value("prepend_scheme", step.value("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return MetaspaceSteps::Prefix::kUnlessThere;
  if (scheme == "first") return MetaspaceSteps::Prefix::kUnlessThereAtBeginning;
  if (scheme == "never") return MetaspaceSteps::Prefix::kNone;
  return Unsupported(absl::StrCat("prepend_scheme ", scheme));
}

absl::Status ParseMetaspace(const Json& root, MetaspaceSteps& steps) {
  const Json pre_tokenizers = StepsOf(root, "pre_tokenizer", "pretokenizers");
  if (!steps.is_normalizer && pre_tokenizers.empty()) return Unsupported("byte_fallback without a sign for spaces");
  for (const Json& step : pre_tokenizers) {
    // No space is left to split at, so Gemma's does nothing.
    if (steps.is_normalizer && TypeOf(step) == "Split" && step.at("pattern") == Json{{"String", " "}}) continue;
    if (steps.is_normalizer || pre_tokenizers.size() > 1 || TypeOf(step) != "Metaspace" ||
        step.at("replacement") != kSpaceMark) {
      return Unsupported(NameOf(step));
    }
    ASSIGN_OR_RETURN(steps.prefix, ParsePrependScheme(step));
    steps.splits = step.value("split", true);
  }
  return absl::OkStatus();
}

absl::Status ParsePreTokenizer(const Json& root, BpeSpec& spec) {
  if (auto* const metaspace = std::get_if<MetaspaceSteps>(&spec.steps)) return ParseMetaspace(root, *metaspace);
  return ParseSplits(root.at("pre_tokenizer"), std::get<ByteLevelSteps>(spec.steps));
}

absl::Status ParseDecoder(const Json& root, const BpeSpec& spec) {
  const bool is_metaspace = std::holds_alternative<MetaspaceSteps>(spec.steps);
  for (const Json& step : StepsOf(root, "decoder", "decoders")) {
    const std::string type = TypeOf(step);
    const bool of_metaspace = type == "ByteFallback" || type == "Fuse" || type == "Metaspace" ||
                              IsReplace(step, kSpaceMark, " ") || (type == "Strip" && step.at("content") == " ");
    if (is_metaspace ? !of_metaspace : type != "ByteLevel") return Unsupported(NameOf(step));
  }
  return absl::OkStatus();
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

bool IsAddedToken(const Json& entry) {
  const auto content = entry.is_object() ? entry.find("content") : entry.end();
  return content != entry.end() && content->is_string() && entry.contains("id") && ParseId(entry["id"], "").ok();
}

// Puts those of an added_tokens_decoder to the file's as transformers does, in the order of their numbers there: one
// that the file has keeps its id and is found as it says there, one that is a word of the vocabulary has its id, and
// another one the next, whatever its number.
absl::Status PutAddedTokens(const Json& decoder, const Ids& vocabulary, Json& added) {
  std::map<int64_t, const Json*> by_number;
  for (const auto& [key, token] : decoder.items()) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(key, &number)) return absl::InvalidArgumentError(absl::StrCat(Json(key).dump(), " is no id"));
    by_number[number] = &token;
  }
  absl::flat_hash_map<std::string, size_t> places;
  auto next = static_cast<int32_t>(vocabulary.size());
  for (size_t i = 0; i < added.size(); ++i) {
    const auto content = added.at(i).at("content").get<std::string>();
    ASSIGN_OR_RETURN(const int32_t id, ParseId(added[i].at("id"), content));
    places[content] = i;
    next = std::max(next, id + 1);
  }
  for (const auto& [number, token] : by_number) {
    Json entry = *token;
    const auto content = entry.at("content").get<std::string>();
    if (const auto place = places.find(content); place != places.end()) {
      entry["id"] = added[place->second].at("id");
      added[place->second] = std::move(entry);
    } else {
      const auto word = vocabulary.find(content);
      entry["id"] = word != vocabulary.end() ? word->second : next++;
      places[content] = added.size();
      added.push_back(std::move(entry));
    }
  }
  return absl::OkStatus();
}

// Puts those of an added_tokens.json to the file's, which count where both have a token. transformers gives the others
// ids as it does those of an added_tokens_decoder, whatever ids they have here, which are the model's.
absl::Status PutOlderAddedTokens(const Json& older, const std::set<std::string>& special, const Ids& vocabulary,
                                 Json& added) {
  if (!older.is_object()) return absl::InvalidArgumentError("cannot be read, or is no JSON object");
  Json decoder = Json::object();
  for (const auto& [content, value] : older.items()) {
    ASSIGN_OR_RETURN(const int32_t id, ParseId(value, content));
    Json& token = decoder[absl::StrCat(id)];
    if (!token.is_null()) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " is given to ", token.at("content").dump(), " and ", Json(content).dump()));
    }
    token = {{"content", content}, {"normalized", !special.contains(content)}};
  }
  for (const Json& entry : added) {
    if (const auto both = older.find(entry.at("content").get<std::string>()); both != older.end()) {
      decoder.erase(absl::StrCat(both->get<int32_t>()));
    }
  }
  RETURN_IF_ERROR(PutAddedTokens(decoder, vocabulary, added));
  for (const Json& entry : added) {
    const auto both = older.find(entry.at("content").get<std::string>());
    if (both == older.end() || *both == entry.at("id")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(entry.at("content").dump(), " has id ", both->dump(), ", but ", entry.at("id").dump(),
                     " with tokenizer.json, as in transformers; correct the one that is not the model's"));
  }
  return absl::OkStatus();
}

// Those of the vocabulary that no list of added tokens has become added ones, too, as in transformers, which would also
// give ids of its own to those that there are not.
absl::Status PutSpecialTokens(absl::Span<const std::pair<std::string, Json>> named, const Ids& vocabulary,
                              Json& added) {
  absl::flat_hash_set<std::string> known;
  for (const Json& entry : added) known.insert(entry.at("content").get<std::string>());
  for (const auto& [name, token] : named) {
    Json entry = token.is_object() ? token : Json{{"content", token}};
    const auto content = entry.at("content").get<std::string>();
    if (!known.insert(content).second) continue;
    const auto word = vocabulary.find(content);
    if (word == vocabulary.end() && name == "pad_token") continue;  // stands in no text
    if (word == vocabulary.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", Json(content).dump(), ", which the tokenizer does not have: add it to ",
                       "\"added_tokens\" of tokenizer.json, with its id in the model, or correct it"));
    }
    entry["id"] = word->second;
    entry["special"] = true;
    added.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status PutThoseBeside(const TokenizerJsonSettings& beside, const Ids& vocabulary, Json& added) {
  if (!beside.added_tokens_decoder.is_null()) {
    RETURN_IF_ERROR(Section("added_tokens_decoder of tokenizer_config.json",
                            [&] { return PutAddedTokens(beside.added_tokens_decoder, vocabulary, added); }));
  }
  if (!beside.older_added_tokens.is_null()) {
    RETURN_IF_ERROR(Section("added_tokens.json", [&] {
      return PutOlderAddedTokens(beside.older_added_tokens, beside.older_special, vocabulary, added);
    }));
  }
  return Section("tokenizer_config.json and special_tokens_map.json",
                 [&] { return PutSpecialTokens(beside.special_tokens, vocabulary, added); });
}

absl::Status ParseAddedTokens(const Json& entries, Ids& ids, BpeSpec& spec) {
  AddedEntries added;
  for (const Json& entry : entries) RETURN_IF_ERROR(ParseAddedToken(entry, ids, spec, added));
  std::vector<bool> is_added(spec.token_bytes.size());
  for (const auto* some : {&added.first, &added.second}) {
    for (const AddedTokens::Entry& entry : *some) is_added[static_cast<size_t>(entry.token)] = true;
  }
  spec.base_vocab_size = std::ssize(spec.token_bytes);
  while (spec.base_vocab_size > 0 && is_added[static_cast<size_t>(spec.base_vocab_size - 1)]) --spec.base_vocab_size;
  ASSIGN_OR_RETURN(spec.added_first, AddedTokens::Create(std::move(added.first)));
  const auto* const metaspace = std::get_if<MetaspaceSteps>(&spec.steps);
  if (metaspace != nullptr && metaspace->is_normalizer) {  // they are looked for in what is normalized as they are
    for (AddedTokens::Entry& entry : added.second) {
      const bool prefix = metaspace->prefix == MetaspaceSteps::Prefix::kAlways && !entry.content.empty();
      entry.content = MarkSpaces(entry.content, prefix);
      spec.token_bytes[entry.token] = SpellMetaspace(entry.content);
    }
  }
  ASSIGN_OR_RETURN(spec.added_second, AddedTokens::Create(std::move(added.second)));
  return absl::OkStatus();
}

std::optional<int32_t> FirstOf(absl::Span<const char* const> names, const Ids& ids) {
  for (const char* name : names) {
    if (const auto found = ids.find(name); found != ids.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(const std::string& content, const TokenizerJsonSettings& beside) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(content));
  if (!root.is_object()) return absl::InvalidArgumentError("not a JSON object");
  BpeSpec spec;
  Ids ids;
  RETURN_IF_ERROR(Section("model", [&] { return ParseModel(root.at("model"), ids, spec); }));
  RETURN_IF_ERROR(Section("normalizer", [&] { return ParseNormalizer(root, spec); }));
  RETURN_IF_ERROR(Section("pre_tokenizer", [&] { return ParsePreTokenizer(root, spec); }));
  RETURN_IF_ERROR(Section("decoder", [&] { return ParseDecoder(root, spec); }));
  Json added = IsAbsent(root, "added_tokens") ? Json::array() : root.at("added_tokens");
  if (std::all_of(added.begin(), added.end(), IsAddedToken)) RETURN_IF_ERROR(PutThoseBeside(beside, ids, added));
  RETURN_IF_ERROR(Section("added_tokens", [&] { return ParseAddedTokens(added, ids, spec); }));
  spec.end_of_text = FirstOf(kEndOfTextNames, ids);
  spec.begin_of_text = FirstOf(kBeginOfTextNames, ids);
  if (!spec.begin_of_text.has_value()) spec.begin_of_text = spec.end_of_text;
  if (!spec.end_of_text.has_value() && !beside.eos_token.empty()) {
    spec.end_of_text = FirstOf({beside.eos_token.c_str()}, ids);
  }
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
