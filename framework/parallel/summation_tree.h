#pragma once
// The canonical association of a step's sums (DESIGN: "a fixed summation tree"): contributions 0 .. M-1 are added along
// the binary tree over aligned power-of-two blocks, kept as a binary counter of at most log2(M) + 1 partial sums. What
// is left at the end is folded from the smallest block to the largest. The result depends on the contributions only,
// never on who computed which of them.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/parallel/aligned_blocks.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Sums flat fp32 vectors of n elements on a device. Buffers are recycled: after the first step nothing is allocated,
/// and M = 1 costs one buffer and no copy. Thread-safety: none.
///
///   for (...) { HF_ASSIGN_OR_RETURN(float* g, tree.Open()); /* write g */ tree.Close(); }
///   float* sum = tree.Finish();  ...  tree.Reset();
class SummationTree {
 public:
  /// The finished sum of an aligned block.
  struct Partial {
    AlignedBlock block;
    const float* sum = nullptr;
  };

  /// `device` and `ops` must outlive the tree.
  SummationTree(Device& device, kernels::Ops& ops, int64_t n);

  /// A buffer for the next contribution, uninitialised.
  absl::StatusOr<float*> Open();
  /// Adds the opened buffer as contribution number next().
  void Close();
  /// Adds `sum` (n), the finished sum of contributions next() .. next() + 2^level - 1, next() being a multiple of
  /// 2^level. `sum` may be changed afterwards.
  absl::Status Push(const float* sum, int level);

  /// The sum of everything closed so far (at least one contribution, the first being number 0); valid until Reset.
  float* Finish();
  /// What has been closed so far, as the fewest aligned blocks in order; valid until the next call.
  std::vector<Partial> Partials() const;
  /// Forgets all contributions, keeps the memory. The next one is number `first`.
  void Reset(int64_t first = 0);

  int64_t next() const { return next_; }
  size_t bytes() const;
  /// How many buffers a sum of `contributions` pushed one by one needs: the one being written and the partial sums.
  static int MaxBuffers(int64_t contributions);

 private:
  struct Entry {
    AlignedBlock block;
    size_t buffer = 0;
  };

  absl::StatusOr<size_t> TakeBuffer();
  bool JoinsLast(const AlignedBlock& block) const;
  void Append(AlignedBlock block, size_t buffer);

  Device& device_;
  kernels::Ops& ops_;
  int64_t n_;
  int64_t next_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<size_t> free_;
  std::optional<size_t> open_;
  std::vector<Entry> partial_;  // ascending
};

/// The same association for one number (losses, statistics).
class ScalarSummationTree {
 public:
  void Add(double value);
  double Sum() const;

 private:
  std::map<int, double> partial_;  // level -> sum of 2^level contributions
};

}  // namespace holdfast
