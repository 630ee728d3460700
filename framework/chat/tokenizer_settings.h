#pragma once
// What lies beside a Hugging Face tokenizer.json: chat templates and the names of special tokens.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

struct TokenizerSettings {
  std::map<std::string, std::string> templates = {};       // by name; one alone is "default"
  std::map<std::string, std::string> special_tokens = {};  // "bos_token", "eos_token", ...: their text
  std::vector<int32_t> prefix = {};  // what the tokenizer puts before a text: its BOS, if it has one
};

/// Of a directory that holds tokenizer.json.
absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::string& directory);

}  // namespace holdfast
