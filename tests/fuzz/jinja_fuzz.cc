// What a template of any bytes does: it is refused, or rendered within its bounds, twice with the same result, and what
// {% generation %} blocks wrote lies in the text.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/jinja/json_value.h"
#include "framework/jinja/template.h"

namespace holdfast::jinja {
namespace {

constexpr char kVariables[] =
    R"({"messages": [{"role": "system", "content": " Be\nbrief. "}, {"role": "user", "content": "Größe 学 😀"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
        {"role": "tool", "content": "a</think>b"}, {"role": "assistant", "content": "c"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "bos_token": "<s>", "eos_token": "</s>",
        "add_generation_prompt": true, "documents": null, "n": 7, "l": [3, 1, 2], "d": {"b": 2, "a": 1}})";

void Check(bool condition) {
  if (!condition) abort();
}

void Render(const std::string& source) {
  static const Value* const variables = new Value(ParseJson(kVariables).value());
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) {
    Check(absl::IsInvalidArgument(parsed.status()) || absl::IsUnimplemented(parsed.status()));
    return;
  }
  const RenderOptions options{.now = "2024-07-05", .steps_max = 100'000, .bytes_max = 16 << 20};
  const auto first = parsed->Render(variables->dict(), options);
  const auto second = parsed->Render(variables->dict(), options);
  Check(first.ok() == second.ok());
  if (!first.ok()) {
    Check(first.status() == second.status() && !first.status().message().empty());
    return;
  }
  Check(first->text == second->text);
  size_t at = 0;
  for (const Span& span : first->generations) {
    Check(at <= span.begin && span.begin <= span.end && span.end <= first->text.size());
    at = span.end;
  }
}

}  // namespace
}  // namespace holdfast::jinja

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::jinja::Render(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
