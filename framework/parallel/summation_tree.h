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
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Sums flat fp32 vectors of n elements on a device. Buffers are recycled: after the first step nothing is allocated,
/// and M = 1 costs one buffer and no copy. Thread-safety: none.
///
///   for (...) { HF_ASSIGN_OR_RETURN(float* g, tree.Open()); /* write g */ tree.Close(); }
///   float* sum = tree.Finish();  ...  tree.Reset();
class SummationTree {
 public:
  /// `device` and `ops` must outlive the tree.
  SummationTree(Device& device, kernels::Ops& ops, int64_t n);

  /// A buffer for the next contribution, uninitialised.
  absl::StatusOr<float*> Open();
  /// Adds the opened buffer as contribution number `count()`, or, with `level` > 0, as the finished sum of the next
  /// 2^level contributions (count() must be a multiple of 2^level).
  void Close(int level = 0);

  /// The sum of everything closed so far (at least one contribution); valid until Reset.
  float* Finish();
  /// Forgets all contributions, keeps the memory.
  void Reset();

  int64_t count() const { return count_; }
  size_t bytes() const;
  /// How many buffers a sum of `contributions` pushed one by one needs: the one being written and the partial sums.
  static int MaxBuffers(int64_t contributions);

 private:
  void Merge(int level, size_t buffer);

  Device& device_;
  kernels::Ops& ops_;
  int64_t n_;
  int64_t count_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<size_t> free_;
  std::optional<size_t> open_;
  std::map<int, size_t> partial_;  // level -> buffer
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
