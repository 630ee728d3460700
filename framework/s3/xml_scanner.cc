#include "framework/s3/xml_scanner.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxEntityBytes = 10;

using OnElement = absl::FunctionRef<absl::Status(absl::string_view path, absl::string_view text)>;

void AppendUtf8(uint32_t c, std::string* out) {
  const auto tail = [&](int shift) { *out += static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) {
    *out += static_cast<char>(c);
  } else if (c < 0x800) {
    *out += static_cast<char>(0xc0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    *out += static_cast<char>(0xe0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    *out += static_cast<char>(0xf0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// "#38" or "#x26", without the number sign's meaning checked beyond Unicode's range.
std::optional<uint32_t> CharacterReference(absl::string_view digits) {
  const bool hex = !digits.empty() && (digits[0] == 'x' || digits[0] == 'X');
  if (hex) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  uint32_t value = 0;
  for (const char c : digits) {
    const bool ok = hex ? absl::ascii_isxdigit(static_cast<unsigned char>(c)) : c >= '0' && c <= '9';
    if (!ok) return std::nullopt;
    const uint32_t digit = c <= '9' ? static_cast<uint32_t>(c - '0') : static_cast<uint32_t>((c | 0x20) - 'a') + 10;
    value = value * (hex ? 16 : 10) + digit;
    if (value > 0x10ffff) return std::nullopt;
  }
  return value;
}

class Scanner {
 public:
  Scanner(absl::string_view document, OnElement on_element) : rest_(document), on_element_(on_element) {}

  absl::Status Run() {
    RETURN_IF_ERROR(ReadText());
    while (!rest_.empty()) {
      RETURN_IF_ERROR(ReadMarkup());
      RETURN_IF_ERROR(ReadText());
    }
    if (!open_.empty() || !had_root_) return Bad("ends early");
    return absl::OkStatus();
  }

 private:
  struct Element {
    size_t path_bytes;  // of the path without it
    std::string text;
  };

  static absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("the XML ", what)); }

  // Up to and over the next `end`.
  absl::Status SkipPast(absl::string_view end) {
    const size_t at = rest_.find(end);
    if (at == absl::string_view::npos) return Bad("ends inside a tag");
    rest_.remove_prefix(at + end.size());
    return absl::OkStatus();
  }

  // Up to the next tag.
  absl::Status ReadText() {
    const absl::string_view text = rest_.substr(0, rest_.find('<'));
    rest_.remove_prefix(text.size());
    if (open_.empty()) {
      const absl::string_view bare = absl::StripPrefix(text, "\xef\xbb\xbf");  // a byte order mark
      return absl::StripAsciiWhitespace(bare).empty() ? absl::OkStatus() : Bad("has text outside its root");
    }
    return AppendText(text, &open_.back().text);
  }

  static absl::Status AppendText(absl::string_view text, std::string* out) {
    for (;;) {
      const size_t ampersand = text.find('&');
      absl::StrAppend(out, text.substr(0, ampersand));
      if (ampersand == absl::string_view::npos) return absl::OkStatus();
      text.remove_prefix(ampersand + 1);
      const size_t semicolon = text.substr(0, kMaxEntityBytes).find(';');
      if (semicolon == absl::string_view::npos) return Bad("has a bare \"&\"");
      RETURN_IF_ERROR(AppendEntity(text.substr(0, semicolon), out));
      text.remove_prefix(semicolon + 1);
    }
  }

  static absl::Status AppendEntity(absl::string_view name, std::string* out) {
    if (name == "amp") return *out += '&', absl::OkStatus();
    if (name == "lt") return *out += '<', absl::OkStatus();
    if (name == "gt") return *out += '>', absl::OkStatus();
    if (name == "quot") return *out += '"', absl::OkStatus();
    if (name == "apos") return *out += '\'', absl::OkStatus();
    if (!absl::StartsWith(name, "#")) return Bad("has an unknown entity");
    const std::optional<uint32_t> character = CharacterReference(name.substr(1));
    if (!character) return Bad("has a wrong character reference");
    AppendUtf8(*character, out);
    return absl::OkStatus();
  }

  absl::Status ReadMarkup() {
    if (absl::StartsWith(rest_, "<?")) return SkipPast("?>");
    if (absl::StartsWith(rest_, "<!--")) return SkipPast("-->");
    if (absl::StartsWith(rest_, "<!")) return Bad("has a document type or CDATA");
    if (absl::StartsWith(rest_, "</")) return ReadEnd();
    return ReadStart();
  }

  // The tag's inside, "Key xmlns=\"...\"" or "Key/", with ">" in quoted values passed over.
  absl::StatusOr<absl::string_view> ReadTag(size_t skip) {
    rest_.remove_prefix(skip);
    char quote = '\0';
    for (size_t i = 0; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '<') {
        return Bad("has a tag inside a tag");
      } else if (c == '>') {
        const absl::string_view inside = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return inside;
      }
    }
    return Bad("ends inside a tag");
  }

  // Without its namespace prefix; empty if it is no name.
  static absl::string_view LocalName(absl::string_view tag) {
    absl::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n/"));
    const size_t colon = name.rfind(':');
    if (colon != absl::string_view::npos) name.remove_prefix(colon + 1);
    return name.size() > kMaxNameBytes ? absl::string_view() : name;
  }

  absl::Status ReadStart() {
    ASSIGN_OR_RETURN(const absl::string_view tag, ReadTag(1));
    const absl::string_view name = LocalName(tag);
    if (name.empty()) return Bad("has an element without a name");
    if (open_.empty() && had_root_) return Bad("has two roots");
    if (open_.size() == kMaxDepth) return Bad("is too deep");
    had_root_ = true;
    open_.push_back({path_.size(), ""});
    absl::StrAppend(&path_, path_.empty() ? "" : "/", name);
    return absl::EndsWith(tag, "/") ? Close() : absl::OkStatus();
  }

  absl::Status ReadEnd() {
    ASSIGN_OR_RETURN(const absl::string_view tag, ReadTag(2));
    const absl::string_view name = LocalName(tag);
    if (open_.empty()) return Bad("has an end without a beginning");
    absl::string_view open_name = absl::string_view(path_).substr(open_.back().path_bytes);
    if (absl::StartsWith(open_name, "/")) open_name.remove_prefix(1);
    return name == open_name ? Close() : Bad("has an end that is not its beginning's");
  }

  absl::Status Close() {
    RETURN_IF_ERROR(on_element_(path_, open_.back().text));
    path_.resize(open_.back().path_bytes);
    open_.pop_back();
    return absl::OkStatus();
  }

  absl::string_view rest_;
  OnElement on_element_;
  std::string path_;
  std::vector<Element> open_;
  bool had_root_ = false;
};

}  // namespace

absl::Status ScanXml(absl::string_view document, OnElement on_element) { return Scanner(document, on_element).Run(); }

}  // namespace holdfast
