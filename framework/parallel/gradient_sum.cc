#include "framework/parallel/gradient_sum.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

GradientBuffers::Lent& GradientBuffers::Lent::operator=(Lent&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  owner_ = std::exchange(other.owner_, nullptr);
  memory_ = std::move(other.memory_);
  return *this;
}

void GradientBuffers::Lent::GiveBack() {
  if (owner_ == nullptr) return;
  const std::lock_guard lock(owner_->mutex_);
  const size_t bytes = memory_.bytes();
  owner_->free_.emplace(bytes, std::move(memory_));
  owner_ = nullptr;
}

absl::StatusOr<GradientBuffers::Lent> GradientBuffers::Take(int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  {
    const std::lock_guard lock(mutex_);
    if (auto free = free_.extract(bytes); !free.empty()) return Lent(*this, std::move(free.mapped()));
    bytes_ += bytes;
  }
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device_, bytes, "gradient sums"));
  return Lent(*this, std::move(memory));
}

size_t GradientBuffers::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

GradientSum::GradientSum(GradientBuffers& buffers, kernels::Ops& ops, const SumOrder& order, int64_t n)
    : buffers_(buffers), ops_(ops), order_(order), n_(n) {}

absl::StatusOr<float*> GradientSum::Open() {
  HOLDFAST_CHECK(!open_.has_value());
  ASSIGN_OR_RETURN(open_, buffers_.Take(n_));
  return open_->data();
}

void GradientSum::Close() {
  HOLDFAST_CHECK(open_.has_value());
  Piece piece{{next_, 1}, *std::move(open_)};
  open_.reset();
  Append(std::move(piece));
}

absl::Status GradientSum::Push(const float* sum, int64_t count) {
  const MicrobatchRange range{next_, count};
  HOLDFAST_CHECK(!open_.has_value() && order_.Pieces(range).size() == 1);
  if (!pieces_.empty() && order_.Joins(pieces_.back().range, range)) {  // saves the copy
    Piece earlier = std::move(pieces_.back());
    pieces_.pop_back();
    ops_.Add(earlier.sum.data(), sum, n_);
    earlier.range.count += count;
    Append(std::move(earlier));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(GradientBuffers::Lent copy, buffers_.Take(n_));
  ops_.Copy(copy.data(), sum, static_cast<size_t>(n_) * sizeof(float));
  Append({range, std::move(copy)});
  return absl::OkStatus();
}

void GradientSum::Append(Piece piece) {
  next_ = piece.range.end();
  while (!pieces_.empty() && order_.Joins(pieces_.back().range, piece.range)) {
    Piece earlier = std::move(pieces_.back());
    pieces_.pop_back();
    ops_.Add(earlier.sum.data(), piece.sum.data(), n_);
    earlier.range.count += piece.range.count;
    piece = std::move(earlier);
  }
  pieces_.push_back(std::move(piece));
}

float* GradientSum::Finish() {
  HOLDFAST_CHECK(!open_.has_value() && !pieces_.empty() && pieces_.front().range.first == 0);
  while (pieces_.size() > 1) {
    ops_.Add(pieces_[pieces_.size() - 2].sum.data(), pieces_.back().sum.data(), n_);
    pieces_.pop_back();
    pieces_.back().range.count = next_ - pieces_.back().range.first;
  }
  return pieces_.front().sum.data();
}

std::vector<GradientSum::Piece> GradientSum::TakePieces() { return std::exchange(pieces_, {}); }

void GradientSum::Reset(int64_t first) {
  open_.reset();
  pieces_.clear();
  next_ = first;
}

void ScalarSummationTree::Add(double value) {
  int level = 0;
  for (auto it = partial_.find(level); it != partial_.end(); it = partial_.find(++level)) {
    value = it->second + value;
    partial_.erase(it);
  }
  partial_[level] = value;
}

double ScalarSummationTree::Sum() const {
  double sum = 0;
  bool first = true;
  for (const auto& [level, value] : partial_) {
    sum = first ? value : value + sum;
    first = false;
  }
  return sum;
}

}  // namespace holdfast
