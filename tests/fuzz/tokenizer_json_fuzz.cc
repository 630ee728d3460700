// What ParseTokenizerJson does with any bytes, and the tokenizers it accepts with a text. The bytes are also merged
// into a good file, else hardly anything would get past the vocabulary.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/json.h"
#include "framework/data/tokenizer_json.h"

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
  const auto tokenizer = MakeTokenizer(*std::move(spec));
  const auto whole = tokenizer->Encode(kText);
  if (!whole.ok()) return;
  for (const int32_t token : *whole) Check(token >= 0 && token < tokenizer->vocab_size());
  tokenizer->Decode(*whole);
  const auto placed = tokenizer->EncodeWithRanges(kText);
  Check(placed.ok() && placed->tokens == *whole && placed->ranges.size() == whole->size());
  size_t begin = 0, end = 0;
  for (const ByteRange& range : placed->ranges) {
    Check(range.begin >= begin && range.end >= end && range.begin <= range.end && range.end <= sizeof(kText) - 1);
    begin = range.begin;
    end = range.end;
  }
  std::vector<int32_t> beginning;
  const auto done = tokenizer->EncodeBeginning(kText, beginning);
  if (!done.ok()) return;
  const auto rest = tokenizer->Encode(std::string_view(kText).substr(*done));
  if (!rest.ok()) return;
  beginning.insert(beginning.end(), rest->begin(), rest->end());
  Check(beginning == *whole);
}

// As Llama 2's, of a few characters.
nlohmann::json MetaspaceJson() {
  nlohmann::json vocab = {{"\u2581", 256},   {"t", 257},  {"h", 258}, {"\u2581t", 259},
                          {"\u2581th", 260}, {"aa", 262}, {"a", 261}};
  for (int byte = 0; byte < 256; ++byte) vocab[absl::StrFormat("<0x%02X>", byte)] = byte;
  const nlohmann::json merges = {{"\u2581", "t"}, {"\u2581t", "h"}, {"a", "a"}};
  const nlohmann::json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const nlohmann::json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, replace}}}},
          {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", merges}}}};
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(input);
  const nlohmann::json patch = holdfast::ParseJson(input, 32).value_or(nullptr);
  if (!patch.is_object()) return 0;
  for (nlohmann::json root : {nlohmann::json::parse(holdfast::ByteTokenizerJson()), holdfast::MetaspaceJson()}) {
    root.merge_patch(patch);
    holdfast::Parse(root.dump());
  }
  return 0;
}
