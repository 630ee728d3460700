#include "framework/data/sample_order.h"

#include "framework/base/status.h"

namespace holdfast {
namespace {

// Four rounds are enough for large domains, not for the tiny ones of tests and fine-tuning sets. Chi-squared of
// (position, sample) over 100,000 epochs of n = 5, in standard deviations from uniform: 498 with 4 rounds, 34 with
// 6, 1.4 with 8.
constexpr int kRounds = 12;

// splitmix64's finaliser (Steele, Lea & Flood 2014): every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Encrypt(uint64_t value, uint64_t key, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (Mix(key + static_cast<uint64_t>(round) * 0xd1342543de82ef95 + right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

SampleOrder::SampleOrder(int64_t n, uint64_t seed, bool shuffle)
    : n_(n), seed_(seed), shuffle_(shuffle), half_bits_(1) {
  HOLDFAST_CHECK(n >= 1);
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(n)) ++half_bits_;
}

int64_t SampleOrder::At(int64_t position) const {
  HOLDFAST_CHECK(position >= 0);
  const int64_t epoch = position / n_;
  const int64_t offset = position % n_;
  if (!shuffle_) return offset;
  const uint64_t key = Mix(Mix(seed_) ^ static_cast<uint64_t>(epoch));
  // The domain is less than 4n, so the walk back into [0, n) takes fewer than four steps on average.
  uint64_t value = static_cast<uint64_t>(offset);
  do {
    value = Encrypt(value, key, half_bits_);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace holdfast
