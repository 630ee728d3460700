#pragma once
// Unicode normalization form C (Unicode Standard Annex 15): what can be composed is. A library does it; this file says
// where in the text each piece of what comes out was.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// Whether `text` is UTF-8 and in form C already, or has nothing that might compose. Quick for what has no character
/// beyond U+02FF.
bool IsNfc(std::string_view text);

/// For a text that may go on: bytes at its beginning whose form C is the beginning of that of the whole text, whatever
/// follows. They end before a character that nothing before it composes with or changes places with.
size_t NfcFinished(std::string_view text);

/// A text in form C and where its bytes come from. Pieces begin at ASCII characters, with which nothing before them
/// composes. Bytes that are not UTF-8 stay, and nothing composes across them.
class NfcText {
 public:
  explicit NfcText(std::string_view text);

  const std::string& text() const { return text_; }
  /// Where the piece of a byte of text() begins in the original, or the byte itself lies if its piece was in form C;
  /// `at` may be the end. `end`: of a range that ends there.
  size_t InOriginal(size_t at, bool end) const;
  /// Whether both sides of `at` are the form C of both sides of a place in the original.
  bool IsInOriginal(size_t at) const { return InOriginal(at, false) == InOriginal(at, true); }

 private:
  struct Piece {
    size_t original, normalized;  // where it begins
    bool changed;
  };
  std::string text_;
  std::vector<Piece> pieces_;  // and their end
};

}  // namespace holdfast
