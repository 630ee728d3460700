#include "framework/parallel/summation_tree.h"

#include <algorithm>
#include <bit>

#include "framework/base/status.h"

namespace holdfast {

SummationTree::SummationTree(Device& device, kernels::Ops& ops, int64_t n) : device_(device), ops_(ops), n_(n) {}

absl::StatusOr<float*> SummationTree::Open() {
  HF_CHECK(!open_.has_value());
  if (free_.empty()) {
    HF_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device_, static_cast<size_t>(n_) * sizeof(float)));
    free_.push_back(buffers_.size());
    buffers_.push_back(std::move(buffer));
  }
  open_ = free_.back();
  free_.pop_back();
  return buffers_[*open_].as<float>();
}

void SummationTree::Close(int level) {
  HF_CHECK(open_.has_value() && count_ % (int64_t{1} << level) == 0);
  const size_t buffer = *open_;
  open_.reset();
  count_ += int64_t{1} << level;
  Merge(level, buffer);
}

void SummationTree::Merge(int level, size_t buffer) {
  for (auto it = partial_.find(level); it != partial_.end(); it = partial_.find(++level)) {
    const size_t earlier = it->second;
    ops_.Add(buffers_[earlier].as<float>(), buffers_[buffer].as<float>(), n_);
    free_.push_back(buffer);
    buffer = earlier;
    partial_.erase(it);
  }
  partial_[level] = buffer;
}

float* SummationTree::Finish() {
  HF_CHECK(!open_.has_value() && !partial_.empty());
  auto it = partial_.begin();
  size_t sum = it->second;
  for (it = partial_.erase(it); it != partial_.end(); it = partial_.erase(it)) {
    ops_.Add(buffers_[it->second].as<float>(), buffers_[sum].as<float>(), n_);
    free_.push_back(sum);
    sum = it->second;
  }
  partial_[0] = sum;
  return buffers_[sum].as<float>();
}

void SummationTree::Reset() {
  if (open_.has_value()) free_.push_back(*open_);
  open_.reset();
  for (const auto& [level, buffer] : partial_) free_.push_back(buffer);
  partial_.clear();
  count_ = 0;
}

size_t SummationTree::bytes() const { return buffers_.size() * static_cast<size_t>(n_) * sizeof(float); }

int SummationTree::MaxBuffers(int64_t contributions) {
  // While contribution i is written there is a partial sum for every bit of i. The largest i below `contributions` with
  // the most bits has all bits below its highest set, or is contributions - 1 itself.
  const auto last = static_cast<uint64_t>(contributions - 1);
  const int all_ones = static_cast<int>(std::bit_width(last)) - (std::has_single_bit(last + 1) ? 0 : 1);
  return 1 + std::max({0, all_ones, std::popcount(last)});
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
