#pragma once
// Patterns of names: * stands for any characters, ? for one.

#include "absl/strings/string_view.h"

namespace holdfast {

/// Whether the whole of `text` is what `pattern` stands for. Steps: at most the product of their lengths.
bool MatchesGlob(absl::string_view pattern, absl::string_view text);

}  // namespace holdfast
