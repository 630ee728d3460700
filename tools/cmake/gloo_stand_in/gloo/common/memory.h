#pragma once
// Gloo's header of the pairs (gloo/transport/tcp/pair.h) includes one that Debian's package leaves out. Here is what a
// pair needs of it: a buffer as long as it lives. Sizes and calls are those of libgloo, which holds a weak and a shared
// pointer; the buffer's destructor waits for the latter.

#include <memory>

#define HOLDFAST_GLOO_STAND_IN 1

namespace gloo {

template <typename T>
class WeakNonOwningPtr final {
 public:
  std::shared_ptr<T> Lock() const { return pointer_.lock(); }

 private:
  std::weak_ptr<T> pointer_;
};

template <typename T>
class NonOwningPtr final {
 public:
  NonOwningPtr() = default;
  explicit NonOwningPtr(const WeakNonOwningPtr<T>& weak) : pointer_(weak.Lock()) {}
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  std::shared_ptr<T> pointer_;
};

}  // namespace gloo
