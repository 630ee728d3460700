#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast {

/// The first `max_bytes` of a text for people, or up to three less: a UTF-8 character is not cut in two.
std::string ClipText(std::string_view text, size_t max_bytes);

}  // namespace holdfast
