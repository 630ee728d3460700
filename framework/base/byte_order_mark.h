#pragma once
// The mark with which spreadsheets and editors of some systems begin a text in UTF-8.

namespace holdfast {

/// `text`, a string_view of std or absl, without it.
template <typename View>
constexpr View WithoutByteOrderMark(View text) {
  constexpr char kMark[] = "\xef\xbb\xbf";
  return text.substr(0, sizeof kMark - 1) == kMark ? text.substr(sizeof kMark - 1) : text;
}

}  // namespace holdfast
