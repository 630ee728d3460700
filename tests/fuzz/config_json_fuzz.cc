// What ParseHuggingFaceConfig does with any bytes. What is accepted has sizes within their ranges and comes back from
// the text that is written of it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/config/validate.h"
#include "models/families/huggingface.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& text) {
  ReadTokenizerConfigJson(text);
  ImpliedGenerationConfigJson(text, 100);
  const auto parsed = ParseHuggingFaceConfig(text, "config.json");
  if (!parsed.ok()) {
    Check(absl::IsUnimplemented(parsed.status()) || absl::IsInvalidArgument(parsed.status()));
    Check(parsed.status().message().size() < 10'000);
    return;
  }
  Check(CheckModel(parsed->model).ok());
  const std::string written = HuggingFaceConfigJson(parsed->model, {.bytes = parsed->byte_tokenizer}, "", text);
  const auto again = ParseHuggingFaceConfig(written, "config.json");
  Check(again.ok() && again->byte_tokenizer == parsed->byte_tokenizer);
  Check(ArithmeticDifferences(parsed->model, again->model).empty());
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::Parse(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
