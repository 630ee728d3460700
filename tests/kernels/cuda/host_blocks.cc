#include "tests/kernels/cuda/host_blocks.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace {

/// Of memory that operator new does not give.
template <typename T>
struct Malloc {
  using value_type = T;
  Malloc() = default;
  template <typename U>
  Malloc(const Malloc<U>&) {}  // NOLINT(google-explicit-constructor): as containers need it
  static T* allocate(size_t n) {
    void* const data = std::malloc(n * sizeof(T));
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<T*>(data);
  }
  static void deallocate(T* data, size_t) { std::free(data); }
  bool operator==(const Malloc&) const = default;
};

class Blocks {
 public:
  void Add(void* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[static_cast<char*>(begin)] = bytes;
  }
  void Remove(void* begin) {
    const std::lock_guard lock(mutex_);
    bytes_.erase(static_cast<char*>(begin));
  }
  holdfast::kernels::HostBlock Find(char* at) const {
    const std::lock_guard lock(mutex_);
    auto block = bytes_.upper_bound(at);
    if (block == bytes_.begin()) return {};
    --block;
    if (at > block->first + block->second) return {};
    return {block->first, block->second};
  }

 private:
  mutable std::mutex mutex_;
  std::map<char*, size_t, std::less<>, Malloc<std::pair<char* const, size_t>>> bytes_;
};

/// There before whatever allocates, and after it.
Blocks& All() {
  static Blocks& all = *new (Malloc<Blocks>::allocate(1)) Blocks;
  return all;
}

void* Allocate(size_t bytes) {
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  All().Add(data, bytes);
  return data;
}

void Release(void* data) {
  if (data == nullptr) return;
  All().Remove(data);
  std::free(data);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void operator delete(void* data) noexcept { Release(data); }
void operator delete(void* data, size_t) noexcept { Release(data); }

namespace holdfast::kernels {

HostBlock FindHostBlock(const void* at) { return All().Find(static_cast<char*>(const_cast<void*>(at))); }

}  // namespace holdfast::kernels
