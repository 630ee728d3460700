#pragma once
// Which sample a position of the training stream is: a pure function, so that any rank of any world can compute any
// microbatch, and a resumed run continues at the exact sample where it stopped.

#include <cstdint>

namespace holdfast {

/// A permutation of [0, n) by a keyed Feistel network with cycle walking: O(1) memory, random access (Black & Rogaway
/// 2002, "Ciphers with arbitrary finite domains").
class SampleOrder {
 public:
  /// n >= 1 samples in an epoch. Without `shuffle` every epoch is 0, 1, ..., n - 1.
  SampleOrder(int64_t n, uint64_t seed, bool shuffle);

  /// The sample at `position` >= 0 of the endless stream: epoch = position / n, each epoch a permutation of its own.
  int64_t At(int64_t position) const;

 private:
  int64_t n_;
  uint64_t seed_;
  bool shuffle_;
  int half_bits_;
};

}  // namespace holdfast
