#pragma once
// What kernel tests share: seeded inputs, bf16 conversion, matrices with poisoned padding, error measures, and running
// the same call with several numbers of threads.
//
//   Rng rng(NewSeed());                                   // prints the seed; HOLDFAST_TEST_SEED=n replays it
//   TestMatrix x(DType::kBF16, 33, 65, 70); x.Fill(rng);  // (33, 65), stride 70
//   EXPECT_LE(RelativeError(y.Values(), expected), 1e-5);
//   EXPECT_TRUE(y.PaddingIntact());

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/philox.h"

namespace holdfast::kernels {

using Rng = std::mt19937_64;

inline constexpr int kThreadCounts[] = {1, 2, 3, 5};
inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

/// A fresh seed each run, or HOLDFAST_TEST_SEED; printed so that a failure can be replayed.
inline uint64_t NewSeed() {
  const char* replay = std::getenv("HOLDFAST_TEST_SEED");
  const uint64_t seed = replay != nullptr ? std::strtoull(replay, nullptr, 10) : std::random_device{}();
  std::printf("replay with HOLDFAST_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

inline float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FromBf16(uint16_t bits) { return BitsToFloat(static_cast<uint32_t>(bits) << 16); }

/// Round to nearest even, written as a search between the two neighbours rather than as the usual bit trick.
inline uint16_t ToBf16(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint16_t down = static_cast<uint16_t>(bits >> 16);  // towards zero
  if (std::isnan(value)) return static_cast<uint16_t>(down | 0x40);
  const uint32_t rest = bits & 0xffffu;
  const bool up = rest > 0x8000u || (rest == 0x8000u && (down & 1) != 0);
  return static_cast<uint16_t>(down + (up ? 1 : 0));
}

inline std::vector<float> RandomVector(Rng& rng, int64_t n, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(rng);
  return values;
}

/// HOLDFAST_TEST_MEMORY=exact: the memory of matrices ends where they do, so that a sanitizer sees a read beyond them.
inline bool MemoryIsExact() {
  static const char* const memory = std::getenv("HOLDFAST_TEST_MEMORY");
  return memory != nullptr && std::string_view(memory) == "exact";
}

/// An owned matrix of either dtype. Everything, padding included, starts as a NaN with a recognisable payload, so an
/// element that was not written, or a write beyond a row's end, is seen.
class TestMatrix {
 public:
  TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t stride = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(stride == 0 ? cols : stride) {
    bytes_.resize(static_cast<size_t>(end() - begin()) * SizeOf(dtype_));
    for (size_t i = 0; i + 1 < bytes_.size(); i += 2) std::memcpy(&bytes_[i], &kPoison, 2);
  }

  /// Normal values, rounded to the dtype.
  void Fill(Rng& rng, float scale = 1.0f) { Set(RandomVector(rng, rows_ * cols_, scale)); }

  void Set(std::span<const float> values) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) Set(r, c, values[static_cast<size_t>(r * cols_ + c)]);
    }
  }

  void Set(int64_t r, int64_t c, float value) {
    if (dtype_ == DType::kF32) {
      std::memcpy(At(r, c), &value, 4);
    } else {
      const uint16_t bits = ToBf16(value);
      std::memcpy(At(r, c), &bits, 2);
    }
  }

  float Get(int64_t r, int64_t c) const {
    const void* at = const_cast<TestMatrix*>(this)->At(r, c);
    if (dtype_ == DType::kF32) {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return FromBf16(bits);
  }

  /// Row-major (rows, cols), without padding.
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) values.push_back(Get(r, c));
    }
    return values;
  }

  bool PaddingIntact() const {
    for (int64_t i = begin(); i < end(); ++i) {
      const bool inside = i >= 0 && i < rows_ * stride_ && i % stride_ < cols_;
      if (inside) continue;
      const unsigned char* at = &bytes_[static_cast<size_t>(i - begin()) * SizeOf(dtype_)];
      for (size_t b = 0; b < SizeOf(dtype_); b += 2) {
        if (std::memcmp(at + b, &kPoison, 2) != 0) return false;
      }
    }
    return true;
  }

  bool SameBits(const TestMatrix& other) const { return bytes_ == other.bytes_; }

  Matrix view() { return {At(0, 0), dtype_, rows_, cols_, stride_}; }
  ConstMatrix view() const { return const_cast<TestMatrix*>(this)->view(); }
  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 private:
  static constexpr uint16_t kPoison = 0x7fa7;
  static constexpr int64_t kGuard = 32;  // elements before the first row and after the last

  // Of the memory, in elements from the first of the first row.
  static int64_t begin() { return MemoryIsExact() ? 0 : -kGuard; }
  int64_t end() const {
    if (!MemoryIsExact()) return rows_ * stride_ + kGuard;
    return rows_ == 0 ? 0 : (rows_ - 1) * stride_ + cols_;
  }

  void* At(int64_t r, int64_t c) {
    return bytes_.data() + static_cast<size_t>(r * stride_ + c - begin()) * SizeOf(dtype_);
  }

  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<unsigned char> bytes_;
};

/// |actual - expected| / |expected| in the Frobenius norm; NaN anywhere gives NaN, which fails every EXPECT_LE.
template <typename A, typename B>
double RelativeError(const A& actual, const B& expected) {
  double difference = 0, norm = 0;
  if (std::size(actual) != std::size(expected)) return NAN;
  for (size_t i = 0; i < std::size(expected); ++i) {
    const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  if (norm == 0) return std::sqrt(difference);
  return std::sqrt(difference / norm);
}

/// The largest |actual - expected|, each as a share of what it may be, allowed(i): catches a single wrong element that
/// a norm would hide.
template <typename A, typename B, typename Allowed>
double LargestShare(const A& actual, const B& expected, const Allowed& allowed) {
  double largest = 0;
  if (std::size(actual) != std::size(expected)) return NAN;
  for (size_t i = 0; i < std::size(expected); ++i) {
    const double share = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])) / allowed(i);
    if (!(share <= largest)) largest = share;
    if (std::isnan(largest)) break;
  }
  return largest;
}

/// Largest |actual - expected| / (|expected| + floor).
template <typename A, typename B>
double MaxError(const A& actual, const B& expected, double floor = 1.0) {
  return LargestShare(actual, expected, [&](size_t i) { return std::abs(static_cast<double>(expected[i])) + floor; });
}

/// Half a unit in the last place of bf16, relative.
inline constexpr double kBF16Rounding = 1.0 / 256;

/// Of the dtype, plus slack for fp32 arithmetic.
inline double RoundingError(DType dtype) { return (dtype == DType::kF32 ? 0 : kBF16Rounding) + 2e-6; }

/// What element `e` of a dropout is multiplied by, from the scalar definition.
inline float DropoutFactor(const Dropout& dropout, int64_t e) {
  if (dropout.rate == 0) return 1.0f;
  const bool keep = PhiloxWord(dropout.key, static_cast<uint64_t>(e)) >= DropoutThreshold(dropout.rate);
  return keep ? DropoutScale(dropout.rate) : 0.0f;
}

inline RandomKey RandomTestKey(Rng& rng) {
  return {rng(), static_cast<uint32_t>(rng()), static_cast<uint32_t>(rng()), static_cast<uint32_t>(rng())};
}

/// Sequences of documents of these lengths, over and over, each sequence beginning with the next one.
class TestDocuments {
 public:
  TestDocuments(int64_t batch, int64_t sequence, const std::vector<int64_t>& lengths) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t begin = 0, i = b; begin < sequence; ++i) {
        const int64_t end = std::min(begin + lengths[static_cast<size_t>(i) % lengths.size()], sequence);
        begin_.insert(begin_.end(), static_cast<size_t>(end - begin), static_cast<int32_t>(begin));
        end_.insert(end_.end(), static_cast<size_t>(end - begin), static_cast<int32_t>(end));
        begin = end;
      }
    }
  }
  Documents view() const { return {begin_.data(), end_.data()}; }

 private:
  std::vector<int32_t> begin_, end_;
};

/// Whose operations a test program tests: each links one implementation of MakeTestDevice.
class TestDevice {
 public:
  virtual ~TestDevice() = default;
  virtual Ops& ops() = 0;
  virtual void Synchronize() = 0;
  virtual std::span<const int> thread_counts() const { return kThreadCounts; }
  /// Whether a bf16 product may be rounded before something is added to it, and after, too.
  virtual bool may_round_twice() const { return false; }
};
std::unique_ptr<TestDevice> MakeTestDevice(int num_threads);

/// Operations on memory that the test can read and write; what a call does is done when its statement ends.
class TestOps {
 public:
  class Call {
   public:
    explicit Call(TestDevice& device) : device_(device) {}
    ~Call() { device_.Synchronize(); }
    Call(const Call&) = delete;
    Ops* operator->() { return &device_.ops(); }

   private:
    TestDevice& device_;
  };

  explicit TestOps(int num_threads) : TestOps(MakeTestDevice(num_threads)) {}
  explicit TestOps(std::unique_ptr<TestDevice> device) : device_(std::move(device)) {}
  Call operator->() { return Call(*device_); }
  std::span<const int> thread_counts() const { return device_->thread_counts(); }
  bool may_round_twice() const { return device_->may_round_twice(); }

 private:
  std::unique_ptr<TestDevice> device_;
};

/// Runs `call`, which returns its outputs as bytes, with every number of threads and expects the same bits.
template <typename Call>
void ExpectSameBitsForAnyThreadCount(Call&& call) {
  TestOps one(1);
  const auto expected = call(one);
  for (int threads : one.thread_counts()) {
    TestOps ops(threads);
    const auto actual = call(ops);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(actual[0])), 0)
        << "bits differ with " << threads << " threads";
  }
}

}  // namespace holdfast::kernels
