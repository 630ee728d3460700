#include "kernels/cpu/gemm_onednn.h"

#include <omp.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/gemm.h"

namespace holdfast::kernels {
namespace {

// A tile's operands and its fp32 sums (512 KiB) fit a server's second-level cache; the size never follows the threads.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileCols = 512;
constexpr size_t kProductsMax = 512;  // more shapes than any model has; beyond it the cache starts anew

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc Describe(DType dtype, int64_t rows, int64_t cols, bool transposed, int64_t stride) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, cols}, TypeOf(dtype), strides};
}

/// Gives OpenMP one thread while in scope: each of our tasks is one oneDNN call.
class OneOmpThread {
 public:
  OneOmpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOmpThread() { omp_set_num_threads(before_); }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int before_;
};

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

char* At(const ConstMatrix& m, bool transposed, int64_t row, int64_t col) {
  const int64_t offset = transposed ? col * m.stride + row : row * m.stride + col;
  return static_cast<char*>(const_cast<void*>(m.data)) + offset * static_cast<int64_t>(SizeOf(m.dtype));
}

}  // namespace

/// What a primitive is made for. `c` has no part in it: sums are always fp32 rows of kTileCols.
struct OneDnnGemm::Key {
  int64_t m, n, k, a_stride, b_stride;
  DType a_dtype, b_dtype;
  bool transpose_a, transpose_b;

  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>
};

struct OneDnnGemm::Product {
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul matmul;

  Product(const dnnl::engine& engine, const Key& key)
      : a(Describe(key.a_dtype, key.m, key.k, key.transpose_a, key.a_stride)),
        b(Describe(key.b_dtype, key.k, key.n, key.transpose_b, key.b_stride)),
        c(Describe(DType::kF32, key.m, key.n, false, kTileCols)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
    scratch = description.scratchpad_desc();
    matmul = dnnl::matmul(description);
  }
};

struct OneDnnGemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<Key, Product> products;
};

OneDnnGemm::OneDnnGemm() : state_(std::make_unique<State>()) {}
OneDnnGemm::~OneDnnGemm() = default;

bool OneDnnGemm::Pays() {
  const int has = static_cast<int>(dnnl::get_effective_cpu_isa());
  const int wanted = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (has & wanted) == wanted;
}

const OneDnnGemm::Product* OneDnnGemm::Find(const Key& key) {
  const auto found = state_->products.find(key);
  if (found != state_->products.end()) return &found->second;
  try {
    return &state_->products.try_emplace(key, state_->engine, key).first->second;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

bool OneDnnGemm::Run(Executor& executor, const GemmArgs& args) {
  const int64_t m = args.c.rows, n = args.c.cols, k = args.transpose_a ? args.a.rows : args.a.cols;
  if (m <= 0 || n <= 0 || k <= 0) return false;
  const OneOmpThread one_thread;  // creation consults the number of threads, too
  if (state_->products.size() + 4 > kProductsMax) state_->products.clear();

  // The four kinds of tile: whole ones and those at the lower and right edge. All exist before any is used.
  const Product* products[2][2];
  size_t scratch_bytes = 0;
  for (int edge_row = 0; edge_row < 2; ++edge_row) {
    for (int edge_col = 0; edge_col < 2; ++edge_col) {
      const int64_t rows = edge_row ? (m - 1) % kTileRows + 1 : std::min(m, kTileRows);
      const int64_t cols = edge_col ? (n - 1) % kTileCols + 1 : std::min(n, kTileCols);
      const Product* product = Find({rows, cols, k, args.a.stride, args.b.stride, args.a.dtype, args.b.dtype,
                                     args.transpose_a, args.transpose_b});
      if (product == nullptr) return false;
      products[edge_row][edge_col] = product;
      scratch_bytes = std::max(scratch_bytes, product->scratch.get_size());
    }
  }

  const int64_t row_tiles = (m + kTileRows - 1) / kTileRows, col_tiles = (n + kTileCols - 1) / kTileCols;
  // noexcept: a primitive that exists has no reason to fail; if it does, the process must not go on with half a C.
  ParallelFor(executor, row_tiles * col_tiles, [&](int64_t task, int thread) noexcept {
    const OneOmpThread one_thread_here;
    const int64_t row0 = task % row_tiles * kTileRows, col0 = task / row_tiles * kTileCols;
    const int64_t rows = std::min(kTileRows, m - row0), cols = std::min(kTileCols, n - col0);
    const Product& product = *products[row0 + kTileRows >= m][col0 + kTileCols >= n];
    const size_t sum_bytes = AlignUp(static_cast<size_t>(kTileRows * kTileCols) * sizeof(float));
    char* memory = static_cast<char*>(executor.Scratch(thread, sum_bytes + scratch_bytes));
    float* sums = reinterpret_cast<float*>(memory);
    dnnl::stream stream(state_->engine);
    product.matmul.execute(stream,
                           {{DNNL_ARG_SRC, {product.a, state_->engine, At(args.a, args.transpose_a, row0, 0)}},
                            {DNNL_ARG_WEIGHTS, {product.b, state_->engine, At(args.b, args.transpose_b, 0, col0)}},
                            {DNNL_ARG_DST, {product.c, state_->engine, sums}},
                            {DNNL_ARG_SCRATCHPAD, {product.scratch, state_->engine, memory + sum_bytes}}});
    FinishTile(args, sums, kTileCols, {row0, col0, rows, cols});
  });
  return true;
}

}  // namespace holdfast::kernels
