#pragma once
// Adds up the gradients of microbatches in the order that the run's config says (sum_order.h).

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/parallel/sum_order.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Memory for flat fp32 vectors, kept for the next one of the same size: after the first step nothing is allocated.
/// Thread-safe; outlives what it lends.
class GradientBuffers {
 public:
  /// `device` must outlive it.
  explicit GradientBuffers(Device& device) : device_(device) {}

  /// Lent memory; given back when it is destroyed or assigned to.
  class Lent {
   public:
    Lent() = default;
    Lent(Lent&& other) noexcept { *this = std::move(other); }
    Lent& operator=(Lent&& other) noexcept;
    ~Lent() { GiveBack(); }
    float* data() const { return memory_.as<float>(); }

   private:
    friend class GradientBuffers;
    Lent(GradientBuffers& owner, Buffer memory) : owner_(&owner), memory_(std::move(memory)) {}
    void GiveBack();
    GradientBuffers* owner_ = nullptr;
    Buffer memory_;
  };

  /// `n` elements, uninitialised. ResourceExhausted if there is no more memory.
  absl::StatusOr<Lent> Take(int64_t n);
  /// All that was ever allocated.
  size_t bytes() const;

 private:
  Device& device_;
  mutable std::mutex mutex_;
  std::multimap<size_t, Buffer> free_;  // by bytes
  size_t bytes_ = 0;
};

/// Sums flat fp32 vectors of n elements on a device. One contribution costs one buffer and no copy. Thread-safety:
/// none.
///
///   for (...) { ASSIGN_OR_RETURN(float* g, sum.Open()); /* write g */ sum.Close(); }
///   float* total = sum.Finish();  ...  sum.Reset();
class GradientSum {
 public:
  /// The sum of microbatches that can be added up by themselves.
  struct Piece {
    MicrobatchRange range;
    GradientBuffers::Lent sum;
  };

  /// `buffers` and `ops` must outlive it. What is given back to `buffers` may still be read by what `ops` has queued.
  GradientSum(GradientBuffers& buffers, kernels::Ops& ops, const SumOrder& order, int64_t n);

  /// A buffer for the next contribution, uninitialised.
  absl::StatusOr<float*> Open();
  /// Adds the opened buffer as contribution number next().
  void Close();
  /// Adds `sum` (n) of the `count` microbatches from next() on, which must be a piece. `sum` may be changed once `ops`
  /// is done.
  absl::Status Push(const float* sum, int64_t count);

  /// The sum of everything closed so far (at least one contribution, the first being number 0); valid until Reset.
  float* Finish();
  /// Gives away what has been closed so far, as the fewest pieces in order.
  std::vector<Piece> TakePieces();
  /// Forgets all contributions. The next one is number `first`.
  void Reset(int64_t first = 0);

  int64_t next() const { return next_; }

 private:
  void Append(Piece piece);

  GradientBuffers& buffers_;
  kernels::Ops& ops_;
  SumOrder order_;
  int64_t n_;
  int64_t next_ = 0;
  std::optional<GradientBuffers::Lent> open_;
  std::vector<Piece> pieces_;  // ascending
};

/// The sum of numbers along the tree (losses), whatever the order of gradients.
class ScalarSummationTree {
 public:
  void Add(double value);
  double Sum() const;

 private:
  std::map<int, double> partial_;  // level -> sum of 2^level contributions
};

}  // namespace holdfast
