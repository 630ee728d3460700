#pragma once
// Under the address sanitizer, which is to show that memory is used well, tests of many rounds do a part of them.

namespace holdfast {

#ifdef __SANITIZE_ADDRESS__
inline constexpr int kSlower = 5;
#else
inline constexpr int kSlower = 1;
#endif

}  // namespace holdfast
