#pragma once
// Types that all kernels use: element types, matrix views, random keys. No ownership here: a view points into memory
// that the caller keeps allocated, on the device of the `Ops` it is handed to.

#include <cstddef>
#include <cstdint>

namespace holdfast::kernels {

/// Element types. `kBF16` is the upper half of an IEEE-754 binary32, rounded to nearest even.
enum class DType : uint8_t { kF32, kBF16 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

/// A read-only matrix view: element (r, c) is at `data + (r * stride + c) * SizeOf(dtype)`.
struct ConstMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements between the starts of two rows, >= cols
};

/// A writable matrix view. A default-constructed one means "not wanted" where an operation says optional.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  operator ConstMatrix() const { return {data, dtype, rows, cols, stride}; }  // NOLINT: a view may always lose `write`
};

/// Names one stream of random numbers. Element e of the stream is a pure function of this key and e (Philox4x32-10,
/// Salmon et al. 2011), so it depends on no thread, rank or order of evaluation.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t step = 0;  ///< from 1; 0: what is before the first, initial values. Of 2^32 steps, which at a thousand a
                      ///< second take seven weeks, the next have the numbers of the first again: bits stay determined
  uint32_t microbatch = 0;
  uint32_t site = 0;  ///< which use inside the model: layer * 8 + position in the layer
};

/// Inverted dropout: element e is zeroed with probability `rate` by `key`, and scaled by 1 / (1 - rate) otherwise.
struct Dropout {
  float rate = 0;  ///< 0 = none
  RandomKey key;
};

/// Sequences that consist of several documents, none of which sees another, and each of which has positions of its own.
struct Documents {
  /// (B, T): where, in its sequence, the document of each row begins and, exclusive, where it ends; both ascend along a
  /// sequence. Memory of the device. Null: each sequence is one document.
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
};

/// Where rows lie in their documents: row r of R is at r mod sequence, less where its document begins.
struct Positions {
  Positions(int64_t of_sequence, const int32_t* of_documents = nullptr)  // NOLINT(google-explicit-constructor)
      : sequence(of_sequence), begin(of_documents) {}

  int64_t sequence;
  const int32_t* begin;  ///< Documents::begin; null = 0

  int64_t At(int64_t row) const { return row % sequence - (begin == nullptr ? 0 : begin[row]); }
};

}  // namespace holdfast::kernels
