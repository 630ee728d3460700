#pragma once
// What lies beside a Hugging Face tokenizer.json: chat templates and the names of special tokens.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/data/tokenizer.h"

namespace holdfast {

struct TokenizerSettings {
  std::map<std::string, std::string> templates = {};       // by name; one alone is "default"
  std::map<std::string, std::string> special_tokens = {};  // "bos_token", "eos_token", ...: their text
  std::vector<int32_t> prefix = {};  // what the tokenizer puts before a text: its BOS, if it has one
  std::vector<int32_t> ends = {};    // after which a model writes no more: eos_token_id of generation_config.json
};

/// Of a directory that holds tokenizer.json.
absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::string& directory);

/// InvalidArgument if the prefix has a token beyond the vocabulary.
absl::Status CheckPrefix(const TokenizerSettings& settings, int64_t vocab_size);

/// `prefix` of the settings before the tokens of a text, unless they begin with it.
void PutBefore(const std::vector<int32_t>& prefix, std::vector<int32_t>& tokens);

/// The token that ends a text: "eos_token" of the settings if they name one, else the tokenizer's own.
absl::StatusOr<std::optional<int32_t>> EndOfText(const Tokenizer& tokenizer, const TokenizerSettings& settings);

}  // namespace holdfast
