#include "framework/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

std::string ReprOfString(absl::string_view text) {
  const bool single = text.find('\'') == absl::string_view::npos || text.find('"') != absl::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  while (!text.empty()) {
    const Character next = FirstCharacter(text);
    if (next.code == static_cast<char32_t>(quote) || next.code == '\\') {
      out.push_back('\\');
      out.push_back(text[0]);
    } else if (next.code == '\n' || next.code == '\r' || next.code == '\t') {
      absl::StrAppend(&out, next.code == '\n' ? "\\n" : next.code == '\r' ? "\\r" : "\\t");
    } else if (IsPrintable(next.code)) {
      absl::StrAppend(&out, text.substr(0, next.bytes));
    } else {
      const auto code = static_cast<uint32_t>(next.code);
      absl::StrAppend(&out, code < 0x100     ? absl::StrFormat("\\x%02x", code)
                            : code < 0x10000 ? absl::StrFormat("\\u%04x", code)
                                             : absl::StrFormat("\\U%08x", code));
    }
    text.remove_prefix(next.bytes);
  }
  out.push_back(quote);
  return out;
}

std::string TextOfScalar(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  return value.is_int() ? absl::StrCat(value.integer()) : FormatFloat(value.real());
}

// repr() of values in values.
class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  absl::Status Write(const Value& value) {
    RETURN_IF_ERROR(budget_.Step());
    if (value.is_undefined()) return Put("Undefined");
    if (value.is_string()) {
      RETURN_IF_ERROR(budget_.Take(static_cast<int64_t>(value.string().size())));
      return Put(ReprOfString(value.string()));
    }
    if (value.is_list() || value.is_tuple()) return WriteItems(value);
    if (value.is_dict()) return WriteDict(value.dict());
    if (value.is_object()) {
      return absl::UnimplementedError(absl::StrCat("the text of ", value.type_text(), " is not supported"));
    }
    return Put(TextOfScalar(value));
  }

  std::string Finish() { return std::move(out_); }

 private:
  absl::Status Put(absl::string_view text) {
    absl::StrAppend(&out_, text);
    return budget_.Take(static_cast<int64_t>(text.size()));
  }

  absl::Status WriteItems(const Value& value) {
    const bool is_tuple = value.is_tuple();
    RETURN_IF_ERROR(Put(is_tuple ? "(" : "["));
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Put(", "));
      RETURN_IF_ERROR(Write(value.items()[i]));
    }
    if (is_tuple) return Put(value.items().size() == 1 ? ",)" : ")");
    return Put("]");
  }

  absl::Status WriteDict(const Dict& dict) {
    RETURN_IF_ERROR(Put("{"));
    for (const auto& [key, item] : dict.entries()) {
      if (&item != &dict.entries().front().second) RETURN_IF_ERROR(Put(", "));
      RETURN_IF_ERROR(Write(key));
      RETURN_IF_ERROR(Put(": "));
      RETURN_IF_ERROR(Write(item));
    }
    return Put("}");
  }

  Budget& budget_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  absl::Status Write(const Value& value) {
    RETURN_IF_ERROR(budget_.Step());
    if (value.is_none()) return Put("null");
    if (value.is_bool()) return Put(value.boolean() ? "true" : "false");
    if (value.is_int()) return Put(absl::StrCat(value.integer()));
    if (value.is_float()) return Put(NumberOf(value.real()));
    if (value.is_string()) return WriteString(value.string());
    if (value.is_list() || value.is_tuple()) return WriteItems(value.items());
    if (value.is_dict()) return WriteDict(value.dict());
    if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_what());
    return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " cannot be written as JSON"));
  }

  std::string Finish() { return std::move(out_); }

 private:
  static std::string NumberOf(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FormatFloat(value);
  }

  absl::Status Put(absl::string_view text) {
    absl::StrAppend(&out_, text);
    return budget_.Take(static_cast<int64_t>(text.size()));
  }

  absl::Status WriteString(absl::string_view text) {
    RETURN_IF_ERROR(budget_.Take(static_cast<int64_t>(text.size())));
    out_.push_back('"');
    while (!text.empty()) {
      const Character next = FirstCharacter(text);
      WriteCharacter(next.code, text.substr(0, next.bytes));
      text.remove_prefix(next.bytes);
    }
    out_.push_back('"');
    return absl::OkStatus();
  }

  void WriteCharacter(char32_t code, absl::string_view bytes) {
    constexpr absl::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const size_t found = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : absl::string_view::npos;
    if (found != absl::string_view::npos) {
      out_.push_back('\\');
      out_.push_back(kLetters[found]);
    } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7e && code < 0x10000)) {
      absl::StrAppendFormat(&out_, "\\u%04x", static_cast<uint32_t>(code));
    } else if (style_.ensure_ascii && code >= 0x10000) {
      const uint32_t offset = code - 0x10000;
      absl::StrAppendFormat(&out_, "\\u%04x\\u%04x", 0xd800 + (offset >> 10), 0xdc00 + (offset & 0x3ff));
    } else {
      absl::StrAppend(&out_, bytes);
    }
  }

  absl::Status NewLine() {
    if (!style_.indent.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(Put("\n"));
    for (int i = 0; i < depth_; ++i) RETURN_IF_ERROR(Put(*style_.indent));
    return absl::OkStatus();
  }

  absl::Status WriteItems(const Items& items) {
    if (items.empty()) return Put("[]");
    RETURN_IF_ERROR(Put("["));
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Put(style_.item_separator));
      RETURN_IF_ERROR(NewLine());
      RETURN_IF_ERROR(Write(items[i]));
    }
    --depth_;
    RETURN_IF_ERROR(NewLine());
    return Put("]");
  }

  absl::Status WriteDict(const Dict& dict) {
    if (dict.empty()) return Put("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) RETURN_IF_ERROR(Sort(entries));
    RETURN_IF_ERROR(Put("{"));
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Put(style_.item_separator));
      RETURN_IF_ERROR(NewLine());
      RETURN_IF_ERROR(WriteKey(entries[i]->first));
      RETURN_IF_ERROR(Put(style_.key_separator));
      RETURN_IF_ERROR(Write(entries[i]->second));
    }
    --depth_;
    RETURN_IF_ERROR(NewLine());
    return Put("}");
  }

  static absl::Status Sort(std::vector<const Dict::Entry*>& entries) {
    const auto is_text = [](const Dict::Entry* entry) { return entry->first.is_string(); };
    if (!std::all_of(entries.begin(), entries.end(), is_text)) {
      return absl::UnimplementedError("sort_keys with keys that are no strings is not supported");
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Dict::Entry* a, const Dict::Entry* b) { return a->first.string() < b->first.string(); });
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.string());
    if (key.is_none()) return Put("\"null\"");
    if (key.is_bool()) return Put(key.boolean() ? "\"true\"" : "\"false\"");
    return WriteString(key.is_float() ? NumberOf(key.real()) : TextOfScalar(key));
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

absl::StatusOr<std::string> ToText(const Value& value, Budget& budget) {
  if (value.is_string()) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(value.string().size())));
    return value.string();
  }
  if (value.is_undefined()) return "";
  ReprWriter writer(budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Finish();
}

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Finish();
}

}  // namespace holdfast::jinja
