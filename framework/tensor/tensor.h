#pragma once
// Buffer owns device memory, Tensor is a view of a row-major block of it, Arena hands out tensors as from a stack.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/device.h"

namespace holdfast {

using kernels::DType;

/// Up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(absl::Span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t elements() const;
  /// Rows and columns of the matrix with all but the last dimension flattened; a vector is one row.
  int64_t rows() const;
  int64_t cols() const { return rank_ == 0 ? 1 : dims_[static_cast<size_t>(rank_ - 1)]; }
  std::string ToString() const;  // "[768, 3072]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Owns a block of device memory. Movable; empty by default.
class Buffer {
 public:
  Buffer() = default;
  /// `what` it is for, a literal. ResourceExhausted says it, and what the largest holders of the device's memory are.
  static absl::StatusOr<Buffer> Allocate(Device& device, size_t bytes, const char* what);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  const char* what_ = "";
};

/// A contiguous row-major view. Copying a Tensor copies the view.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  bool defined() const { return data != nullptr; }
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * kernels::SizeOf(dtype); }
  float* f32() const { return static_cast<float*>(data); }
  uint16_t* bf16() const { return static_cast<uint16_t*>(data); }
  /// Of a tensor that is kept as fp32, for the arena knows 4-byte values as that.
  int32_t* i32() const { return static_cast<int32_t*>(data); }
  /// The matrix (all but the last dimension, last dimension).
  kernels::Matrix matrix() const { return {data, dtype, shape.rows(), shape.cols(), shape.cols()}; }
};

/// A stack of tensors in one block of memory, planned once so that the steady state allocates nothing. A counting arena
/// has no memory: it hands out tensors without data and learns the peak, which is then the capacity of the real one.
/// Release in the reverse order of Allocate.
class Arena {
 public:
  static Arena Counting() { return Arena(); }
  static absl::StatusOr<Arena> Create(Device& device, size_t capacity);

  /// Uninitialised, 64-byte aligned. Exceeding the planned capacity is a bug of the plan and ends the process.
  Tensor Allocate(DType dtype, Shape shape);
  size_t mark() const { return used_; }
  void ReleaseTo(size_t mark) { used_ = mark; }
  size_t peak_bytes() const { return peak_; }
  size_t capacity() const { return block_.bytes(); }

 private:
  Arena() = default;

  bool counting_ = true;
  Buffer block_;
  size_t used_ = 0, peak_ = 0;
};

/// Releases what was allocated during its lifetime.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.ReleaseTo(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace holdfast
