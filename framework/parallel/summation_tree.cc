#include "framework/parallel/summation_tree.h"

#include <algorithm>
#include <bit>

#include "framework/base/status.h"

namespace holdfast {

SummationTree::SummationTree(Device& device, kernels::Ops& ops, int64_t n) : device_(device), ops_(ops), n_(n) {}

absl::StatusOr<size_t> SummationTree::TakeBuffer() {
  if (free_.empty()) {
    HF_ASSIGN_OR_RETURN(Buffer buffer,
                        Buffer::Allocate(device_, static_cast<size_t>(n_) * sizeof(float), "gradient sums"));
    free_.push_back(buffers_.size());
    buffers_.push_back(std::move(buffer));
  }
  const size_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

absl::StatusOr<float*> SummationTree::Open() {
  HF_CHECK(!open_.has_value());
  HF_ASSIGN_OR_RETURN(open_, TakeBuffer());
  return buffers_[*open_].as<float>();
}

void SummationTree::Close() {
  HF_CHECK(open_.has_value());
  const size_t buffer = *open_;
  open_.reset();
  Append({next_, 0}, buffer);
}

absl::Status SummationTree::Push(const float* sum, int level) {
  AlignedBlock block{next_, level};
  HF_CHECK(!open_.has_value() && next_ % (int64_t{1} << level) == 0);
  if (JoinsLast(block)) {  // saves the copy
    const Entry earlier = partial_.back();
    partial_.pop_back();
    ops_.Add(buffers_[earlier.buffer].as<float>(), sum, n_);
    next_ += int64_t{1} << level;
    Append({earlier.block.first, level + 1}, earlier.buffer);
    return absl::OkStatus();
  }
  HF_ASSIGN_OR_RETURN(const size_t buffer, TakeBuffer());
  ops_.Copy(buffers_[buffer].data(), sum, static_cast<size_t>(n_) * sizeof(float));
  Append(block, buffer);
  return absl::OkStatus();
}

bool SummationTree::JoinsLast(const AlignedBlock& block) const {
  return !partial_.empty() && partial_.back().block.level == block.level &&
         partial_.back().block.first % (int64_t{2} << block.level) == 0;
}

void SummationTree::Append(AlignedBlock block, size_t buffer) {
  next_ = block.first + (int64_t{1} << block.level);
  while (JoinsLast(block)) {
    const Entry earlier = partial_.back();
    partial_.pop_back();
    ops_.Add(buffers_[earlier.buffer].as<float>(), buffers_[buffer].as<float>(), n_);
    free_.push_back(buffer);
    buffer = earlier.buffer;
    block = {earlier.block.first, block.level + 1};
  }
  partial_.push_back({block, buffer});
}

float* SummationTree::Finish() {
  HF_CHECK(!open_.has_value() && !partial_.empty() && partial_.front().block.first == 0);
  while (partial_.size() > 1) {
    const size_t later = partial_.back().buffer;
    partial_.pop_back();
    ops_.Add(buffers_[partial_.back().buffer].as<float>(), buffers_[later].as<float>(), n_);
    free_.push_back(later);
  }
  return buffers_[partial_.front().buffer].as<float>();
}

std::vector<SummationTree::Partial> SummationTree::Partials() const {
  std::vector<Partial> result;
  for (const Entry& entry : partial_) result.push_back({entry.block, buffers_[entry.buffer].as<float>()});
  return result;
}

void SummationTree::Reset(int64_t first) {
  if (open_.has_value()) free_.push_back(*open_);
  open_.reset();
  for (const Entry& entry : partial_) free_.push_back(entry.buffer);
  partial_.clear();
  next_ = first;
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
