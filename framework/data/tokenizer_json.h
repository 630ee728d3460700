#pragma once
// Reads a Hugging Face tokenizer.json.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/json.h"
#include "framework/data/bpe_spec.h"
#include "framework/data/tokenizer.h"

namespace holdfast {

/// What the files beside a tokenizer.json say of its tokens.
struct TokenizerJsonSettings {
  std::string eos_token = {};  // ends a text where the file has no token of one of the usual names; "" if there is none
  nlohmann::json added_tokens_decoder = {};  // of tokenizer_config.json; null if it has none
  nlohmann::json older_added_tokens = {};    // of added_tokens.json, the id of each; null if it does not count
  std::set<std::string> older_special = {};  // which of these are found before a text is normalized
  /// What names each special token ("eos_token"), and the token, a string or an added token's object.
  std::vector<std::pair<std::string, nlohmann::json>> special_tokens = {};
};

/// `content` of a tokenizer.json. InvalidArgument if it is broken, Unimplemented (with the name of the feature) if it
/// is none of the two kinds of BPE. Ignored on purpose: post_processor (tokens put around a text are not part of packed
/// data), truncation and padding.
absl::StatusOr<BpeSpec> ParseTokenizerJson(const std::string& content, const TokenizerJsonSettings& beside = {});

std::unique_ptr<const Tokenizer> MakeTokenizer(BpeSpec spec);

/// A tokenizer.json that makes of every byte the token of its value, as the tokenizer "bytes" does.
std::string ByteTokenizerJson();

}  // namespace holdfast
