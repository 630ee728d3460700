#include "framework/parallel/statistics_sum.h"

#include <bit>
#include <utility>

#include "framework/base/status.h"
#include "framework/parallel/gradient_sum.h"

namespace holdfast {
namespace {

int64_t NumCounts(const StatisticsLayout& layout) {
  int64_t counts = 0;
  for (const StatisticSpec& spec : layout.specs()) counts += spec.combine == Combine::kCount ? spec.size : 0;
  return counts;
}

/// What a rank with `items` items sends: their doubles, then its counts.
int64_t PackedSize(const StatisticsLayout& layout, size_t items) {
  const int64_t counts = NumCounts(layout);
  return static_cast<int64_t>(items) * (layout.size() - counts) + counts;
}

void Pack(const ItemStatistics& source, size_t items, std::vector<uint64_t>* packed) {
  const StatisticsLayout& layout = *source.layout;
  std::vector<uint64_t> counts(static_cast<size_t>(NumCounts(layout)));
  const uint64_t* value = source.values.data();
  HOLDFAST_CHECK(source.values.size() == items * static_cast<size_t>(layout.size()));
  for (size_t item = 0; item < items; ++item) {
    size_t count = 0;
    for (const StatisticSpec& spec : layout.specs()) {
      for (int64_t i = 0; i < spec.size; ++i, ++value) {
        if (spec.combine == Combine::kCount) {
          counts[count++] += *value;  // int64 in two's complement
        } else {
          packed->push_back(*value);
        }
      }
    }
  }
  packed->insert(packed->end(), counts.begin(), counts.end());
}

double Sum(Combine combine, absl::Span<const double> by_item) {
  if (combine == Combine::kInOrder) {
    double sum = 0;
    for (const double value : by_item) sum += value;
    return sum;
  }
  ScalarSummationTree sum;
  for (const double value : by_item) sum.Add(value);
  return combine == Combine::kMean ? sum.Sum() / static_cast<double>(by_item.size()) : sum.Sum();
}

/// Of one source, from all ranks.
class Unpacked {
 public:
  explicit Unpacked(const ItemStatistics& source) : layout_(*source.layout) {
    for (const auto& items : source.items) num_items_ += items.size();
    counts_.resize(static_cast<size_t>(NumCounts(layout_)));
    doubles_.resize(static_cast<size_t>(layout_.size()) - counts_.size(), std::vector<double>(num_items_));
  }

  /// What a rank that knows `items` has packed; returns what follows it.
  const uint64_t* Take(const std::vector<int64_t>& items, const uint64_t* packed) {
    for (const int64_t item : items) {
      for (std::vector<double>& values : doubles_) values[static_cast<size_t>(item)] = std::bit_cast<double>(*packed++);
    }
    for (int64_t& count : counts_) count += std::bit_cast<int64_t>(*packed++);
    return packed;
  }

  Statistics Combined() const {
    Statistics combined;
    auto by_item = doubles_.begin();
    auto count = counts_.begin();
    for (const StatisticSpec& spec : layout_.specs()) {
      if (spec.combine == Combine::kCount) {
        combined.Add({spec.name, std::vector<int64_t>(count, count + spec.size)});
        count += spec.size;
        continue;
      }
      std::vector<double> sums;
      for (int64_t i = 0; i < spec.size; ++i) sums.push_back(Sum(spec.combine, *by_item++));
      combined.Add({spec.name, std::move(sums)});
    }
    return combined;
  }

 private:
  const StatisticsLayout& layout_;
  size_t num_items_ = 0;
  std::vector<std::vector<double>> doubles_;  // (doubles of the layout, items)
  std::vector<int64_t> counts_;
};

/// Everybody's words, one rank after the other; sizes[r] of them from rank r.
absl::StatusOr<std::vector<uint64_t>> AllGather(Communicator& world, const std::vector<uint64_t>& mine,
                                                const std::vector<int64_t>& sizes, std::chrono::milliseconds timeout) {
  std::vector<int64_t> bytes, displacements;
  int64_t end = 0;
  for (const int64_t size : sizes) {
    bytes.push_back(size * static_cast<int64_t>(sizeof(uint64_t)));
    displacements.push_back(end);
    end += bytes.back();
  }
  std::vector<uint64_t> all(static_cast<size_t>(end) / sizeof(uint64_t));
  const ConstBytes input(reinterpret_cast<const std::byte*>(mine.data()), mine.size() * sizeof(uint64_t));
  const Bytes output(reinterpret_cast<std::byte*>(all.data()), static_cast<size_t>(end));
  RETURN_IF_ERROR(world.AllGatherV(input, {output, bytes, displacements}, std::chrono::steady_clock::now() + timeout));
  return all;
}

}  // namespace

absl::StatusOr<std::vector<Statistics>> CombineStatistics(absl::Span<const ItemStatistics> sources, Communicator* world,
                                                          std::chrono::milliseconds timeout) {
  const auto rank = static_cast<size_t>(world == nullptr ? 0 : world->rank());
  const auto size = static_cast<size_t>(world == nullptr ? 1 : world->size());
  std::vector<uint64_t> packed;
  std::vector<int64_t> sizes(size);
  std::vector<Unpacked> unpacked;
  for (const ItemStatistics& source : sources) {
    HOLDFAST_CHECK(source.items.size() == size);
    Pack(source, source.items[rank].size(), &packed);
    for (size_t r = 0; r < size; ++r) sizes[r] += PackedSize(*source.layout, source.items[r].size());
    unpacked.emplace_back(source);
  }
  if (world != nullptr) {
    ASSIGN_OR_RETURN(packed, AllGather(*world, packed, sizes, timeout));
  }
  const uint64_t* next = packed.data();
  for (size_t r = 0; r < size; ++r) {
    for (size_t s = 0; s < sources.size(); ++s) next = unpacked[s].Take(sources[s].items[r], next);
  }
  std::vector<Statistics> combined;
  for (const Unpacked& source : unpacked) combined.push_back(source.Combined());
  return combined;
}

}  // namespace holdfast
