#pragma once
// How large a chat template may be: for who reads one to use it, and for who saves one with a model, so that none is
// saved that cannot be used.

#include <cstddef>

namespace holdfast {

inline constexpr size_t kChatTemplateBytesMax = size_t{1} << 20;

}  // namespace holdfast
