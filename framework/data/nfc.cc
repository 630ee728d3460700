#include "framework/data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "framework/base/status.h"
#include "framework/data/byte_level.h"

namespace holdfast {
namespace {

struct Free {
  void operator()(utf8proc_uint8_t* text) const { std::free(text); }
};

std::string Compose(std::string_view text) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(composed);
  HOLDFAST_CHECK(size >= 0);  // no memory, or no UTF-8
  return {reinterpret_cast<const char*>(composed), static_cast<size_t>(size)};
}

/// Of characters from U+0300 on, where the first that compose with others are.
bool MayCompose(char c) { return static_cast<unsigned char>(c) >= 0xcc; }
bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

/// Of characters up to U+02FF and from U+4000 to U+9FFF (Han): all have combining class 0 and NFC_Quick_Check=Yes, so
/// that form C can be made of the texts before and from them by themselves (UAX 15, section 9).
bool BeginsAnew(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x80 || (byte >= 0xc2 && byte <= 0xcb) || (byte >= 0xe4 && byte <= 0xe9);
}

}  // namespace

bool IsNfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(), MayCompose) ||
         (Utf8ValidLength(text) == text.size() && Compose(text) == text);
}

size_t NfcFinished(std::string_view text) {
  const auto last = std::find_if(text.rbegin(), text.rend(), BeginsAnew);
  return last == text.rend() ? 0 : static_cast<size_t>(text.rend() - last) - 1;
}

NfcText::NfcText(std::string_view text) {
  text_.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    // A piece of what composes, with the ASCII character before it, or of what does not; or a byte that is not UTF-8.
    size_t end = begin + 1;
    while (end < text.size() && !IsAscii(text[end])) ++end;
    const size_t valid = Utf8ValidLength(text.substr(begin, end - begin));
    end = begin + std::max<size_t>(valid, 1);
    const std::string_view piece = text.substr(begin, end - begin);
    const std::string composed =
        valid > 0 && std::any_of(piece.begin(), piece.end(), MayCompose) ? Compose(piece) : std::string(piece);
    const bool changed = composed != piece;
    if (changed || pieces_.empty() || pieces_.back().changed) pieces_.push_back({begin, text_.size(), changed});
    text_ += composed;
    begin = end;
  }
  pieces_.push_back({text.size(), text_.size(), false});
}

size_t NfcText::InOriginal(size_t at, bool end) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), at,
                                      [](size_t place, const Piece& piece) { return place < piece.normalized; });
  const Piece& piece = *(after - 1);
  if (!piece.changed || at == piece.normalized) return piece.original + (at - piece.normalized);
  return end ? after->original : piece.original;
}

}  // namespace holdfast
