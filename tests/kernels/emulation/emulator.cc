#include "tests/kernels/emulation/emulator.h"

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#ifdef HOLDFAST_FIND_RACES
#include <sanitizer/tsan_interface.h>
#endif

thread_local holdfast::emulation::Size threadIdx, blockIdx, blockDim, gridDim;

namespace holdfast::emulation {
namespace {

namespace context = boost::context;

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kMaxShared = 228 << 10;
constexpr uint32_t kNaN = 0x7fa7a7a7;

enum class Wait : uint8_t { kNothing, kBlock, kWarp, kNamed, kDone };
constexpr int kNamedBarriers = 16;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Sum {
  float* at;
  std::vector<float> values;
  size_t products;  // that have begun
};
struct Product {
  float* sum;
  std::function<void(float*)> multiply;
};

#ifdef HOLDFAST_FIND_RACES
// To the thread sanitizer a thread of a block is a thread, and what orders two of them is a barrier and nothing else:
// it finds the races that hide behind the order in which fibers happen to run. The threads of one block after the other
// take the same places.
class Place {
 public:
  void Enter() { __tsan_switch_to_fiber(fiber_, kUnordered); }
  static void* Here() { return __tsan_get_current_fiber(); }
  static void Return(void* to) { __tsan_switch_to_fiber(to, kUnordered); }
  static void Release(void* at) { __tsan_release(at); }
  static void Acquire(void* at) { __tsan_acquire(at); }

 private:
  static constexpr unsigned kUnordered = __tsan_switch_to_fiber_no_sync;
  void* fiber_ = __tsan_create_fiber(0);
};
Place& PlaceOf(size_t thread) {
  thread_local std::deque<Place> places;
  while (places.size() <= thread) places.emplace_back();
  return places[thread];
}
#else
class Place {
 public:
  void Enter() {}
  static void* Here() { return nullptr; }
  static void Return(void*) {}
  static void Release(void*) {}
  static void Acquire(void*) {}
};
Place& PlaceOf(size_t) {
  static Place place;
  return place;
}
#endif

struct Thread {
  Size index;
  context::fiber fiber, back;
  Wait wait = Wait::kNothing;
  uint32_t mask = 0;  // of the warp barrier it waits at, or the named barrier
  alignas(16) std::array<std::byte, kMaxExchanged> slot;
  std::vector<Copy> copies;  // not in a group yet
  std::deque<std::vector<Copy>> groups;
  bool copies_shown = true, copy_now = false;
  std::vector<Sum> sums;          // of products that have begun
  std::vector<Product> products;  // not in a group yet
  std::deque<std::vector<Product>> product_groups;
};

// Shared by all launches.
context::pooled_fixedsize_stack& Stacks() {
  thread_local context::pooled_fixedsize_stack stacks(kStackBytes);
  return stacks;
}

[[noreturn]] void Die(const char* why) {
  std::fprintf(stderr, "CUDA emulation: %s\n", why);
  std::abort();
}

class Block {
 public:
  Block(const Size& size, const std::function<void()>& body) : threads_(size.count()), body_(body) {
    for (unsigned i = 0; i < size.count(); ++i) {
      threads_[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    }
  }

  void Run(std::mt19937& random) {
    Place::Release(&begin_);  // what the launch has prepared
    for (Thread& thread : threads_) Start(thread);
    std::vector<size_t> order(threads_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    while (true) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        if (threads_[i].wait == Wait::kNothing) Resume(threads_[i]);
      }
      if (std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) { return t.wait == Wait::kDone; })) {
        Place::Acquire(&end_);
        return;
      }
      const bool ready = std::any_of(threads_.begin(), threads_.end(),  // one a named barrier has let go
                                     [](const Thread& t) { return t.wait == Wait::kNothing; });
      const bool warps = ReleaseWarps();
      if (!ready && !warps && !ReleaseBlock()) Die("a barrier was not reached by all of its threads");
    }
  }

  int lane() const { return static_cast<int>(current_ % kLanes); }
  Thread& current() { return threads_[current_]; }
  Thread& LaneOf(int lane) { return threads_[current_ / kLanes * kLanes + static_cast<size_t>(lane)]; }

  // What may come before the barrier opens again is the kernel's care on a GPU, too.
  void ArriveAt(int id, int threads, bool waits) {
    if (id < 1 || id >= kNamedBarriers || threads % kLanes != 0) Die("a barrier has an id of 1 to 15 and whole warps");
    int& arrived = arrived_[static_cast<size_t>(id)];
    Place::Release(&arrived);
    if (++arrived == threads) {
      arrived = 0;
      void* here = Place::Here();
      for (size_t i = 0; i < threads_.size(); ++i) {
        if (threads_[i].wait != Wait::kNamed || threads_[i].mask != static_cast<uint32_t>(id)) continue;
        threads_[i].wait = Wait::kNothing;
        PlaceOf(i).Enter();
        Place::Acquire(&arrived);
      }
      Place::Return(here);
      if (waits) Place::Acquire(&arrived);
    } else if (waits) {
      Yield(Wait::kNamed, static_cast<uint32_t>(id));
    }
  }

  void Yield(Wait wait, uint32_t mask) {
    Thread& thread = current();
    thread.wait = wait;
    thread.mask = mask;
    thread.back = std::move(thread.back).resume();
  }

 private:
  void Start(Thread& thread) {
    thread.fiber = context::fiber(std::allocator_arg, Stacks(), [this, &thread](context::fiber&& back) {
      thread.back = std::move(back);
      Place::Acquire(&begin_);
      body_();
      Place::Release(&end_);
      thread.wait = Wait::kDone;
      return std::move(thread.back);
    });
  }

  void Resume(Thread& thread) {
    current_ = static_cast<size_t>(&thread - threads_.data());
    threadIdx = thread.index;
    void* here = Place::Here();
    PlaceOf(current_).Enter();
    thread.fiber = std::move(thread.fiber).resume();
    Place::Return(here);
  }

  // Of threads that all wait: what one did before comes before what another does next. `barrier`: where they meet.
  void Open(const std::vector<size_t>& threads, void* barrier) {
    void* here = Place::Here();
    for (const size_t i : threads) {
      PlaceOf(i).Enter();
      Place::Release(barrier);
    }
    for (const size_t i : threads) {
      PlaceOf(i).Enter();
      Place::Acquire(barrier);
      threads_[i].wait = Wait::kNothing;
    }
    Place::Return(here);
  }

  // A warp barrier opens when every lane of its mask has come to one with the same mask.
  bool ReleaseWarps() {
    bool any = false;
    for (size_t first = 0; first < threads_.size(); first += kLanes) {
      const size_t count = std::min<size_t>(kLanes, threads_.size() - first);
      for (size_t i = 0; i < count; ++i) {
        const Thread& thread = threads_[first + i];
        if (thread.wait != Wait::kWarp) continue;
        const uint32_t mask = thread.mask;
        const uint32_t there = count == kLanes ? 0xffffffffu : (1u << count) - 1;
        if ((mask >> i & 1u) == 0) Die("a lane waits for a mask that it is not in");
        bool all = true;
        for (size_t k = 0; k < count && all; ++k) {
          if ((mask & there) >> k & 1u)
            all = threads_[first + k].wait == Wait::kWarp && threads_[first + k].mask == mask;
        }
        if (!all) continue;
        std::vector<size_t> group;
        for (size_t k = 0; k < count; ++k) {
          if (mask >> k & 1u) group.push_back(first + k);
        }
        Open(group, &threads_[first]);
        any = true;
      }
    }
    return any;
  }

  bool ReleaseBlock() {
    std::vector<size_t> all;
    for (const Thread& thread : threads_) {
      if (thread.wait != Wait::kBlock) return false;  // also one that has ended: a bug in waiting
      all.push_back(all.size());
    }
    Open(all, &threads_);
    return true;
  }

  std::vector<Thread> threads_;
  const std::function<void()>& body_;
  size_t current_ = 0;
  std::array<int, kNamedBarriers> arrived_ = {};
  char begin_ = 0, end_ = 0;  // where threads meet the launch
};

thread_local Block* running = nullptr;
alignas(1024) thread_local std::array<std::byte, kMaxShared> shared;

}  // namespace

Time& GpuTime() {
  thread_local Time time;
  return time;
}

bool& IsHopper() {
  thread_local bool is_hopper = false;
  return is_hopper;
}

bool& LacksMemory() {
  thread_local bool lacks_memory = false;
  return lacks_memory;
}

uint32_t& OrderSeed() {
  thread_local uint32_t seed = 0;
  return seed;
}

size_t& MaxSharedBytes() {
  thread_local size_t bytes = kHopperSharedBytes;
  return bytes;
}

int& Multiprocessors() {
  thread_local int count = kFewMultiprocessors;
  return count;
}

int Lane() { return running->lane(); }
void* DynamicShared() { return shared.data(); }
void BlockBarrier() { running->Yield(Wait::kBlock, 0); }
void WarpBarrier(uint32_t mask) { running->Yield(Wait::kWarp, mask); }
void NamedBarrier(int id, int threads, bool waits) { running->ArriveAt(id, threads, waits); }

void Deposit(uint32_t mask, const void* value, size_t bytes) {
  std::memcpy(running->current().slot.data(), value, bytes);
  WarpBarrier(mask);
}
const std::byte* Deposited(int lane) { return running->LaneOf(lane).slot.data(); }
void EndExchange(uint32_t mask) { WarpBarrier(mask); }

void CheckAligned(const void* at, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(at) % alignment != 0) Die("an address is not aligned as its instruction demands");
}

void Do(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

// Every second one happens at once, too, as it may: it destroys what somebody still reads.
void CopyLater(void* to, const void* from, size_t bytes) {
  Thread& thread = running->current();
  thread.copies.push_back({to, from, bytes});
  if ((thread.copy_now = !thread.copy_now)) Do(thread.copies.back());
}

void EndCopyGroup() { running->current().groups.push_back(std::exchange(running->current().copies, {})); }

void WaitForCopyGroups(size_t pending) {
  std::deque<std::vector<Copy>>& groups = running->current().groups;
  for (; groups.size() > pending; groups.pop_front()) {
    if (!groups.front().empty()) running->current().copies_shown = false;
    for (const Copy& copy : groups.front()) Do(copy);
  }
}

void ShowCopies() { running->current().copies_shown = true; }
void CheckCopiesShown() {
  if (!running->current().copies_shown) Die("a product reads what was copied without a fence");
}

void MultiplyLater(float* sum, size_t n, std::function<void(float*)> multiply) {
  std::vector<Sum>& sums = running->current().sums;
  auto found = std::find_if(sums.begin(), sums.end(), [&](const Sum& s) { return s.at == sum; });
  if (found == sums.end()) {
    found = sums.insert(sums.end(), {sum, {sum, sum + n}, 0});
    std::memset(sum, 0xff, n * sizeof(float));  // NaNs
  }
  ++found->products;
  running->current().products.push_back({sum, std::move(multiply)});
}

void EndProductGroup() { running->current().product_groups.push_back(std::exchange(running->current().products, {})); }

void WaitForProductGroups(size_t pending) {
  auto& groups = running->current().product_groups;
  std::vector<Sum>& sums = running->current().sums;
  while (groups.size() > pending) {
    const std::vector<Product> group = std::move(groups.front());
    groups.pop_front();
    for (const Product& product : group) {
      const auto sum = std::find_if(sums.begin(), sums.end(), [&](const Sum& s) { return s.at == product.sum; });
      product.multiply(sum->values.data());
      if (--sum->products > 0) continue;
      std::copy(sum->values.begin(), sum->values.end(), sum->at);
      sums.erase(sum);
    }
  }
}
void WaitForProducts() {
  EndProductGroup();
  WaitForProductGroups(0);
}

void Launch(const Size& grid, const Size& block, size_t shared_bytes, const std::function<void()>& body) {
  if (shared_bytes > kMaxShared) Die("more shared memory than a Hopper GPU has");
  if (block.count() == 0 || block.count() > 1024) Die("a block has 1 to 1024 threads");
  if (grid.count() == 0) Die("a grid has at least one block");
  if (grid.y > 65535 || grid.z > 65535) Die("a grid has at most 65535 blocks in y and z");
  GpuTime().now_ms += GpuTime().kernel_ms;
  blockDim = block;
  gridDim = grid;
  std::mt19937 random(static_cast<uint32_t>(grid.count() * 7919 + block.count()) ^ OrderSeed() << 16);
  std::vector<unsigned> order(grid.count());
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned i : order) {
    for (size_t at = 0; at + 4 <= shared_bytes; at += 4) std::memcpy(&shared[at], &kNaN, 4);
    blockIdx = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
    Block one(block, body);
    running = &one;
    one.Run(random);
    running = nullptr;
  }
}

}  // namespace holdfast::emulation
