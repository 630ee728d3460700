#include "framework/tensor/tensor.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_join.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(absl::MakeConstSpan(dims.begin(), dims.size())) {}

Shape::Shape(absl::Span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  HOLDFAST_CHECK(rank_ <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::elements() const {
  return std::accumulate(dims_.begin(), dims_.begin() + rank_, int64_t{1}, std::multiplies<>());
}

int64_t Shape::rows() const {
  return rank_ <= 1 ? 1 : std::accumulate(dims_.begin(), dims_.begin() + rank_ - 1, int64_t{1}, std::multiplies<>());
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(dims_.begin(), dims_.begin() + rank_, ", "), "]");
}

absl::StatusOr<Buffer> Buffer::Allocate(Device& device, size_t bytes, const char* what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  const absl::StatusOr<void*> data = device.Allocate(bytes);
  if (absl::IsResourceExhausted(data.status())) {
    return OutOfMemoryError(absl::StrCat(data.status().message(), "; this was for ", what,
                                         "; the largest holders are: ", device.memory().LargestHolders()));
  }
  ASSIGN_OR_RETURN(buffer.data_, data);
  device.memory().Take(what, bytes);
  buffer.device_ = &device;
  buffer.bytes_ = bytes;
  buffer.what_ = what;
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(what_, other.what_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  device_->Free(data_, bytes_);
  device_->memory().GiveBack(what_, bytes_);
}

absl::StatusOr<Arena> Arena::Create(Device& device, size_t capacity) {
  Arena arena;
  arena.counting_ = false;
  ASSIGN_OR_RETURN(arena.block_, Buffer::Allocate(device, capacity, "activations"));
  return arena;
}

Tensor Arena::Allocate(DType dtype, Shape shape) {
  Tensor tensor{nullptr, dtype, shape};
  if (!counting_) tensor.data = block_.as<char>() + used_;
  if (__builtin_add_overflow(used_, (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment, &used_)) {
    used_ = std::numeric_limits<size_t>::max() / 2;  // more than there is of memory
  }
  peak_ = std::max(peak_, used_);
  HOLDFAST_CHECK(counting_ || used_ <= block_.bytes());
  return tensor;
}

}  // namespace holdfast
