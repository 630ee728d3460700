#pragma once
// Numbers that a model's pass hands over beside its losses (an auxiliary loss, how many tokens an expert got), and what
// they are for a whole step. A model declares them once; how they are combined over microbatches and ranks is part of
// the declaration and depends on no world.
//
//   const StatisticsLayout statistics{{{.name = "aux_loss", .combine = Combine::kMean},
//                                      {.name = "blocks.3.load", .combine = Combine::kCount, .size = num_experts}}};
//   int64_t* load = statistics.At<int64_t>(context.statistics, 1);   // in a pass, device memory
//   result.statistics.Counts("blocks.3.load")                        // of a step

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/figures.h"

namespace holdfast {

/// How values of microbatches 0 .. M-1 (or of the chunks of a model) become the step's.
enum class Combine : uint8_t {
  kSum,      // double, added along the binary tree over the microbatches
  kMean,     // that, divided by their number
  kInOrder,  // double, added one after another
  kCount,    // int64, added; exact
};

struct StatisticSpec {
  std::string name;
  Combine combine = Combine::kSum;
  int64_t size = 1;  // values
};

/// Statistics one after another, each of `size` values of 8 bytes: int64 for kCount, else double.
class StatisticsLayout {
 public:
  /// Names differ.
  StatisticsLayout(
      std::vector<StatisticSpec> specs = {});  // NOLINT(google-explicit-constructor): a list of them is one

  const std::vector<StatisticSpec>& specs() const { return specs_; }
  /// Values of all.
  int64_t size() const { return size_; }
  int64_t offset(size_t i) const { return offsets_[i]; }
  /// Statistic `i` of those at `block`.
  template <typename T>
  T* At(void* block, size_t i) const {
    static_assert(sizeof(T) == 8);
    return static_cast<T*>(block) + offsets_[i];
  }

 private:
  std::vector<StatisticSpec> specs_;
  std::vector<int64_t> offsets_;
  int64_t size_ = 0;
};

struct Statistic {
  std::string name;
  std::variant<std::vector<double>, std::vector<int64_t>> values;
  friend bool operator==(const Statistic&, const Statistic&) = default;
};

/// Combined statistics, in the order in which they were declared.
class Statistics {
 public:
  void Add(Statistic statistic) { all_.push_back(std::move(statistic)); }
  const std::vector<Statistic>& all() const { return all_; }
  /// Of a statistic that there is, and that is of this type.
  absl::Span<const double> Reals(std::string_view name) const;
  absl::Span<const int64_t> Counts(std::string_view name) const;
  friend bool operator==(const Statistics&, const Statistics&) = default;
  /// Of all names and bits.
  uint64_t Digest() const;

 private:
  const Statistic& Find(std::string_view name) const;
  std::vector<Statistic> all_;
};

}  // namespace holdfast
