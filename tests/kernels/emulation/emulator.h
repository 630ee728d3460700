#pragma once
// Runs the threads of a CUDA grid on the CPU; see cuda_runtime.h in this folder.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace holdfast::emulation {

struct Size {
  unsigned x = 1, y = 1, z = 1;
  unsigned count() const { return x * y * z; }
};

/// Of the running thread in its warp.
int Lane();

/// Bytes of shared memory that a block of the emulated GPU may have: those of compute capability 9.0, until a test says
/// less.
inline constexpr size_t kHopperSharedBytes = 227 << 10;
size_t& MaxSharedBytes();

/// Those that a launch may say of a kernel that has not asked for more: 48 KiB less its static memory, of which the
/// emulation knows nothing. In kernels that have both it takes 1 KiB, which is what dynamic memory is aligned to.
inline constexpr size_t kSharedBytesWithoutAsking = 47 << 10;

/// Of the emulated GPU; two, until a test says otherwise.
inline constexpr int kFewMultiprocessors = 2;
int& Multiprocessors();

/// Whether a GPU takes such a launch (CUDA C++ Programming Guide, technical specifications).
inline bool CanLaunch(const Size& grid, const Size& block, size_t shared_bytes) {
  constexpr unsigned kMaxGrid = 65535, kMaxThreads = 1024;  // the former in y and z
  return grid.x <= 0x7fffffffu && grid.y <= kMaxGrid && grid.z <= kMaxGrid && block.count() <= kMaxThreads &&
         shared_bytes <= MaxSharedBytes();
}

/// The emulated GPU's time, which passes only by what is queued: tests say how much.
struct Time {
  double now_ms = 0;
  double kernel_ms = 1;
};
Time& GpuTime();

/// Whether the emulated GPU has the instructions of compute capability 9.0; false until a test says so.
bool& IsHopper();

/// Whether it has too little memory to load kernels; false until a test says so.
bool& LacksMemory();

/// Decides in which order blocks and threads run.
uint32_t& OrderSeed();

/// Runs `body` once for each thread of each block.
void Launch(const Size& grid, const Size& block, size_t shared_bytes, const std::function<void()>& body);

/// The dynamic shared memory of the running block, 1024-byte aligned; filled with NaNs before each block.
void* DynamicShared();

void BlockBarrier();
void WarpBarrier(uint32_t mask);

/// Barrier `id`, 1 to 15, opens when `threads` threads have come to it; the running one goes on at once if not `waits`.
void NamedBarrier(int id, int threads, bool waits);

/// Lends every lane of `mask` one slot for the length of an exchange.
constexpr size_t kMaxExchanged = 64;
void Deposit(uint32_t mask, const void* value, size_t bytes);
const std::byte* Deposited(int lane);
void EndExchange(uint32_t mask);

/// Ends the process if `at` is not a multiple of `alignment`.
void CheckAligned(const void* at, size_t alignment);

/// Copies of the running thread that happen, some of them a second time, when their group is waited for; `from` null:
/// zeros.
void CopyLater(void* to, const void* from, size_t bytes);
void EndCopyGroup();
void WaitForCopyGroups(size_t pending);

/// What the running thread wrote to shared memory, copies that it waited for included, is shown to products of
/// warpgroups only by ShowCopies; CheckCopiesShown ends the process if it has not been called since.
void ShowCopies();
void CheckCopiesShown();

/// A matrix product of the running warpgroup that happens when it is waited for. `sum` (n values) is unusable until
/// then; `multiply` gets its values. The whole warp does the same.
void MultiplyLater(float* sum, size_t n, std::function<void(float*)> multiply);
void EndProductGroup();
void WaitForProductGroups(size_t pending);
void WaitForProducts();

template <typename T, typename From>
T Exchange(uint32_t mask, const T& value, From&& from) {
  static_assert(sizeof(T) <= kMaxExchanged);
  Deposit(mask, &value, sizeof(T));
  T result;
  std::memcpy(&result, Deposited(from(Lane())), sizeof(T));
  EndExchange(mask);
  return result;
}

/// One bit for each lane of `mask` whose value is `wanted`.
template <typename T>
uint32_t LanesWith(uint32_t mask, const T& value, const T& wanted) {
  Deposit(mask, &value, sizeof(value));
  uint32_t result = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0 && std::memcmp(&wanted, Deposited(lane), sizeof(T)) == 0) result |= 1u << lane;
  }
  EndExchange(mask);
  return result;
}
inline uint32_t Ballot(uint32_t mask, bool yes) { return LanesWith(mask, yes, true); }
inline uint32_t Match(uint32_t mask, int value) { return LanesWith(mask, value, value); }

}  // namespace holdfast::emulation

// Where the running thread is.
extern thread_local holdfast::emulation::Size threadIdx, blockIdx, blockDim, gridDim;
