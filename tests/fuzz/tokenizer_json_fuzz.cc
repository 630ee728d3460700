// What ParseTokenizerJson does with any bytes, and the tokenizers it accepts with a text. The bytes are also merged
// into a good file, else hardly anything would get past the vocabulary.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/base/json_depth.h"
#include "framework/data/tokenizer_json.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr char kText[] = "The step's 12  of\n\n<|end|> aaaaaaaaaaaaaaaaaaaaaaaaaaaab \xe5\xad\xa6 \xff\xc3";

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& text) {
  auto spec = ParseTokenizerJson(text);
  if (!spec.ok()) {
    Check(absl::IsUnimplemented(spec.status()) || absl::IsInvalidArgument(spec.status()));
    return;
  }
  const BpeTokenizer tokenizer(*std::move(spec));
  const auto whole = tokenizer.Encode(kText);
  if (!whole.ok()) return;
  for (const int32_t token : *whole) Check(token >= 0 && token < tokenizer.vocab_size());
  tokenizer.Decode(*whole);
  std::vector<int32_t> beginning;
  const auto done = tokenizer.EncodeBeginning(kText, beginning);
  if (!done.ok()) return;
  const auto rest = tokenizer.Encode(std::string_view(kText).substr(*done));
  if (!rest.ok()) return;
  beginning.insert(beginning.end(), rest->begin(), rest->end());
  Check(beginning == *whole);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(input);
  if (holdfast::JsonNestsDeeperThan(input, 32)) return 0;
  const nlohmann::json patch = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!patch.is_object()) return 0;
  nlohmann::json root = nlohmann::json::parse(holdfast::ByteTokenizerJson());
  root.merge_patch(patch);
  holdfast::Parse(root.dump());
  return 0;
}
