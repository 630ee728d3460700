#pragma once
// Gloo's header of the pairs (gloo/transport/tcp/pair.h) includes one that Debian's package leaves out. Here is what
// pair.h needs of it: names, and the size of the one that it holds by value. Nobody here makes or reads them.

#include <memory>

#define HOLDFAST_GLOO_STAND_IN 1

namespace gloo {

template <typename T>
class NonOwningPtr;

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> pointer_;
};

}  // namespace gloo
