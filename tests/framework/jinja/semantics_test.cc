// Proves that templates give what jinja2 gives as transformers sets it up (golden files of some hundred small ones, see
// tests/golden/make_chat_golden.py), that what jinja2 refuses is refused, and that errors show where.

#include <fstream>
#include <set>
#include <sstream>

#include "framework/jinja/json_value.h"
#include "framework/jinja/letter_case.h"
#include "framework/jinja/template.h"
#include "framework/jinja/unicode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"

namespace holdfast::jinja {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kGolden = SourceDir() + "/tests/framework/jinja/golden/";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

const Dict& Variables() {
  static const Value* const variables = new Value(ParseJson(Contents(kGolden + "variables.json")).value());
  return variables->dict();
}

absl::StatusOr<Rendered> RenderText(const std::string& source,
                                    const RenderOptions& options = {.now = "2024-07-05 13:04:09"}) {
  auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(Variables(), options);
}

std::string MessageOf(const std::string& source, const RenderOptions& options = {}) {
  return std::string(RenderText(source, options).status().message());
}

// What jinja2 renders and we refuse, as the README says.
const std::set<std::string> kUnsupported = {"{{ d.keys() }}", "{% for i in l recursive %}{% endfor %}",
                                            "{% set loop = 1 %}", "{{ é }}"};

TEST(Semantics, AreThoseOfJinja2) {
  const Json cases = Json::parse(Contents(kGolden + "semantics.json"));
  ASSERT_GT(cases.size(), 400);
  for (const Json& one : cases) {
    const auto source = one.at("source").get<std::string>();
    const auto rendered = RenderText(source);
    if (one.contains("error")) {
      EXPECT_FALSE(rendered.ok()) << source << " gives " << rendered->text;
    } else if (!rendered.ok()) {
      EXPECT_TRUE(kUnsupported.contains(source)) << source << ": " << rendered.status();
    } else {
      EXPECT_EQ(rendered->text, one.at("text").get<std::string>()) << source;
    }
  }
}

// Tables and rules of Unicode, of every letter: upper, lower and title case, and sigmas beside every character.
TEST(LetterCase, IsThatOfPython) {
  for (const Json& block : Json::parse(Contents(kGolden + "letter_cases.json"))) {
    uint32_t hash = 2166136261;
    const auto add = [&](const std::string& text) {
      for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619;
    };
    const auto first = block.at("first").get<char32_t>();
    for (char32_t code = first; code < first + 0x1000; ++code) {
      if (code >= 0xd800 && code < 0xe000) continue;
      std::string c;
      AppendCharacter(code, c);
      add(ToCase(c, Case::kUpper) + ToCase(c, Case::kLower) + Capitalize(c) + Title(c + "aΣ" + c));
      for (const std::string& sigma : {"a" + c + "Σ", c + "Σ", "aΣ" + c + "b"}) add(ToCase(sigma, Case::kLower));
    }
    EXPECT_EQ(hash, block.at("hash").get<uint32_t>()) << "of the characters from " << static_cast<uint32_t>(first);
  }
}

TEST(Errors, ShowTheLineAndWhere) {
  EXPECT_THAT(MessageOf("a\n{{ n|nope }}"),
              AllOf(StartsWith("line 2, column 6: the filter \"nope\""), HasSubstr("the line: {{ n|nope }}")));
  EXPECT_THAT(MessageOf("{% for i in l %}\n  {{ i + 'x' }}\n{% endfor %}"),
              StartsWith("line 2, column 8: cannot calculate an int + a str"));
  EXPECT_THAT(MessageOf("{{ raise_exception('no system role') }}"), HasSubstr("the template says: no system role"));
  EXPECT_THAT(MessageOf("{% include 'x' %}"), HasSubstr("{% include %} is not in the subset"));
  EXPECT_THAT(MessageOf("{% call range(2) %}x{% endcall %}"), HasSubstr("{% call %} of a function is not supported"));
  EXPECT_THAT(MessageOf("{% filter length %}a{% endfilter %}"),
              HasSubstr("what the filter gives is an int, not a string"));
  EXPECT_THAT(MessageOf("{{ 1 + none }}"), HasSubstr("cannot calculate an int + None"));
  EXPECT_THAT(MessageOf("{% filter upper %}{% generation %}{% endgeneration %}{% endfilter %}"),
              HasSubstr("a set, call or filter block"));
  EXPECT_THAT(MessageOf("{{ strftime_now('%Y') }}"), HasSubstr("has to be given"));
  for (const char* date : {"24-01-01", "2024-07-05x", "2024-7-5", "2024-07-05 13:04", "2024-02-30"}) {
    EXPECT_THAT(MessageOf("{{ strftime_now('%Y') }}", {.now = date}), HasSubstr("is not YYYY-MM-DD")) << date;
  }
  std::string accents;
  for (int i = 0; i < 500; ++i) accents += "é";
  for (const char* shift : {"", "a"}) {  // one of them cuts where a character has begun
    EXPECT_NO_THROW(Json(MessageOf(shift + accents + "{{ n|nope }}" + accents)).dump()) << "no UTF-8";
  }
}

TEST(Semantics, DeleteIsEscapedAsPythonDoes) {
  EXPECT_EQ(RenderText("{{ '\x7f'|tojson(ensure_ascii=true) }}")->text, "\"\\u007f\"");
  EXPECT_EQ(RenderText("{{ '\x7f'|tojson }}")->text, "\"\x7f\"");
}

TEST(Bounds, EndTemplatesThatLoopOrGrow) {
  const RenderOptions small{.steps_max = 100'000, .bytes_max = 1 << 20};
  std::string loops = "x";  // of a short list: many steps, few bytes
  for (int i = 0; i < 12; ++i) loops = "{% for i in l %}" + loops + "{% endfor %}";
  EXPECT_THAT(MessageOf(loops, {.steps_max = 100'000, .bytes_max = 1 << 28}), HasSubstr("more than 100000 steps"));
  EXPECT_THAT(MessageOf("{% for i in range(9999) %}{{ 'a' * 999 }}{% endfor %}", small), HasSubstr("does it grow"));
  EXPECT_THAT(MessageOf("{{ 'a' * 99999999999 }}", small), HasSubstr("does it grow"));
  EXPECT_THAT(
      MessageOf("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
                small),
      HasSubstr("does it grow"));
  EXPECT_THAT(MessageOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("call themselves without end"));
  EXPECT_THAT(MessageOf("{% macro m() %}{% set c = caller %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}"),
              HasSubstr("call themselves without end"));
  EXPECT_THAT(MessageOf("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("more than 100 in each other"));
  EXPECT_THAT(MessageOf("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("deeper than 200"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_THAT(MessageOf(sum + " }}"), HasSubstr("more than 200 operations"));
}

TEST(Bounds, CountWhatFiltersTestsAndKeysCopy) {
  const RenderOptions few_bytes{.now = "2024-07-05", .bytes_max = 1 << 20};
  for (const char* copies : {"a|lower",
                             "a|upper",
                             "a|title",
                             "a|capitalize",
                             "a|trim",
                             "a|int",
                             "a|float",
                             "a is lower",
                             "a is upper",
                             "{a: 1}",
                             "dict([[a, 1]])",
                             "dict(d)",
                             "dict(**d)",
                             "namespace(**d)",
                             "[a]|unique(case_sensitive=true)|list",
                             "[1]|map(attribute=a, default=1)|list",
                             "[a]|map('lower')|list",
                             "[a]|select('lower')|list",
                             "[]|tojson(indent=a)",
                             "[]|tojson(separators=(a, a))",
                             "strftime_now(a)"}) {
    EXPECT_THAT(MessageOf("{% set a = 'a' * 50000 %}{% set d = {a: 1} %}{% for i in range(100) %}{% set q = " +
                              std::string(copies) + " %}{% endfor %}",
                          few_bytes),
                HasSubstr("more than 1048576 bytes"))
        << copies;
  }
  for (const char* prints : {"{{ 'a' * 500000 }}", "{{ ['a' * 300000]|join }}", "{{ 'a' * 300000 ~ '' }}"}) {
    const auto rendered = RenderText(prints, few_bytes);  // nothing counts more often than it is copied
    EXPECT_TRUE(rendered.ok()) << rendered.status();
  }
}

TEST(Bounds, CountWhatFiltersAndTestsLookAt) {
  const RenderOptions few_steps{.steps_max = 20'000};
  for (const char* looks :
       {"{{ (['a'] * 30000)|select|list|length }}", "{{ (['a'] * 30000)|reject|list|length }}",
        "{{ (['a'] * 30000)|map('default')|list|length }}", "{{ ([{}] * 30000)|map(attribute='a')|list|length }}",
        "{{ ('a' * 6400).startswith(('a' * 6399 ~ 'b',) * 1000) }}",
        "{% set a = 'a' * 640000 %}{% set b = 'a' * 640000 %}{{ a is sameas b }}{{ a is sameas b }}"
        "{{ a is sameas b }}",
        "{% set d = {'a' * 640000: 1} %}{% set e = {'a' * 640000: 1} %}{{ d == e }}{{ d == e }}",
        "{% set a = 'a' * 640000 %}{% set ns = namespace(**{a: 1}) %}{{ ns[a] }}{{ ns[a] }}"}) {
    EXPECT_THAT(MessageOf(looks, few_steps), HasSubstr("more than 20000 steps")) << looks;
  }
}

TEST(Bounds, MessagesOfWhatThereIsNotAreShort) {
  const auto cheap = RenderText("{% set a = 'a' * 1000000 %}{% for i in range(9999) %}{% set q = [][a] %}{% endfor %}");
  EXPECT_TRUE(cheap.ok()) << cheap.status();
  for (const char* owner : {"[]", "{}", "loop"}) {
    const std::string message =
        MessageOf("{% set a = 'xé' * 999 %}{% for i in l %}{{ " + std::string(owner) + "[a].b }}{% endfor %}");
    EXPECT_THAT(message, HasSubstr("has no \"xéxé"));
    EXPECT_LT(message.size(), 400);
    EXPECT_NO_THROW(Json(message).dump()) << "no UTF-8";
  }
}

// With the budget that everybody has, each within a second or two.
TEST(Bounds, OfWhatIsSearchedAndCompared) {
  for (const char* slow :
       {"{% set a='a'*2000000 %}{% set b='a'*1000000~'b' %}{% for i in range(9999) %}{{ b in a }}{% endfor %}",
        "{{ ('a'*2000000).rfind('a'*1000000~'b') }}", "{{ ('a'*2000000).rsplit('b'~'a'*1000000) }}",
        "{% set a='é'*10000000 %}{% for i in range(1000) %}{% set q = a|length %}{% endfor %}",
        "{% set a='a'*1000000 %}{% for i in range(100000) %}{% set q = {}[a] %}{% endfor %}",
        "{% set a='a'*1000000 %}{% for i in range(100000) %}{% set q = {}.get(a) %}{% endfor %}",
        "{% set a='a'*1000000 %}{% for i in range(100000) %}{% set q = a in {} %}{% endfor %}"}) {
    EXPECT_THAT(MessageOf(slow), ::testing::AnyOf(HasSubstr("more than 20000000 steps"), HasSubstr("does it grow")))
        << slow;
  }
  const auto stripped = RenderText("{{ ('a'*2000000).strip('b'*1000000~'a') ~ ('ab'*300000).find('ba'*200000~'b') }}");
  ASSERT_TRUE(stripped.ok()) << stripped.status();
  EXPECT_EQ(stripped->text, "1");
}

TEST(Generation, SpansAreWhatTheBlocksWrote) {
  const auto rendered = RenderText("a{% for i in l %}<{% generation %}é{{ i }}{% endgeneration %}>{% endfor %}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  std::vector<std::string> written;
  for (const Span& span : rendered->generations)
    written.push_back(rendered->text.substr(span.begin, span.end - span.begin));
  EXPECT_THAT(written, ::testing::ElementsAre("é3", "é1", "é2"));
}

}  // namespace
}  // namespace holdfast::jinja
