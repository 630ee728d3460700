// The backward pass of attention: probabilities are recomputed tile by tile from the log-sum-exp (Dao et al. 2022).
//
// With delta[i] = sum over d of d_out[i] out[i], for each pair of a tile of queries and a tile of keys:
//   P = exp(scale Q K^T - lse)      dV += P^T dO      dS = scale P (dO V^T - delta)      dK += dS^T Q      dQ += dS K
//
// P and dS are computed as (queries, kNr keys), which is the packed B operand of dV^T (D, keys) += dO^T P and of
// dK^T += Q^T dS; for dQ, dS is stored a second time, by rows, as an A operand.
//
// Work is cut in one of two ways. With as many (sequence, key/value head) pairs as keep all threads busy, one task does
// a pair: five products, with dQ of the whole sequence in scratch memory. Otherwise dK and dV are tasks of tiles of
// keys and dQ of tiles of queries: seven products. Both add in the same order (keys ascending into dQ; heads, then
// queries, ascending into dK and dV), so which way was taken, which may depend on the number of threads, shows in no
// bit.
//
// Included once per instruction set, after hwy/foreach_target.h; see attention.cc.

#if defined(HOLDFAST_KERNELS_CPU_HEAD_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_HEAD_BACKWARD_INL_H_
#undef HOLDFAST_KERNELS_CPU_HEAD_BACKWARD_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_HEAD_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/head_tile-inl.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/executor.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Keys that are multiplied by the same queries, from a multiple of kRowGroup on, whatever kMr and kNr are: what a
/// query does not see counts as zero, which is not nothing where a value is infinite.
constexpr int64_t kKeyGroup = 32, kRowGroup = 12;

constexpr int64_t kWholeQueryBytesMax = int64_t{32} << 20;  // of dQ and packed queries in a thread's scratch memory

struct BackwardCall {
  Matrix d_qkv;
  ConstMatrix d_out, out, qkv;
  const float* lse;  // (B, H, T)
  const AttentionShape& shape;
  const float* delta;  // (B, H, T)
};

/// One query head.
struct QueryHead {
  HeadMatrix q, d_out, d_q;
  const float* lse;    // (T)
  const float* delta;  // (T)
  uint64_t random;     // dropout element of query 0, key 0
};

struct KeyValueHead {
  HeadMatrix k, v, d_k, d_v;
};

inline QueryHead QueryHeadOf(const BackwardCall& call, int64_t b, int64_t h) {
  const int64_t t = call.shape.sequence, d = call.shape.head_dim, head = b * call.shape.num_heads + h;
  return {HeadOf(call.qkv, b, t, h * d), HeadOf(call.d_out, b, t, h * d), HeadOf(call.d_qkv, b, t, h * d),
          call.lse + head * t,           call.delta + head * t,           static_cast<uint64_t>(head * t * t)};
}

inline KeyValueHead KeyValueHeadOf(const BackwardCall& call, int64_t b, int64_t g) {
  const int64_t t = call.shape.sequence, d = call.shape.head_dim;
  const int64_t k = (call.shape.num_heads + g) * d, v = k + call.shape.num_kv_heads * d;
  return {HeadOf(call.qkv, b, t, k), HeadOf(call.qkv, b, t, v), HeadOf(call.d_qkv, b, t, k),
          HeadOf(call.d_qkv, b, t, v)};
}

/// Scratch memory of one task.
template <class Kernel>
struct BackwardScratch {
  using Word = typename Kernel::Word;

  Word *q_rows, *do_rows;        // packed A: (queries, D)
  Word *q_columns, *do_columns;  // packed A: (D, queries)
  Word *k_rows, *v_rows;         // packed B: (keys, D)
  Word* k_columns;               // packed B: (D, keys)
  float *p, *ds;                 // (queries, kNr)
  Word* ds_rows;                 // A by rows: (queries, keys)
  float *dk, *dv;                // per panel of kNr keys: (D rounded up to kMr, kNr)
  float* dq;                     // per tile of queries, per panel of kNr of D: (queries, kNr)
  float* row;                    // (D)
  uint32_t* buffer;              // masks of one query
  int64_t dk_panel, dq_tile, rows_size, columns_size;

  /// `query_tiles`: whose queries are packed and whose dQ is held at the same time.
  BackwardScratch(Carver& carver, int64_t d, int64_t query_tiles)
      : dk_panel(PanelsOf(d, kMr) * kMr * kNr),
        dq_tile(PanelsOf(d, kNr) * kTile * kNr),
        rows_size(PackedSize<kMr, Word>(kTile, d)),
        columns_size(PackedSize<kMr, Word>(d, kTile)) {
    for (Word** piece : {&q_rows, &do_rows}) *piece = carver.Take<Word>(query_tiles * rows_size);
    for (Word** piece : {&q_columns, &do_columns}) *piece = carver.Take<Word>(query_tiles * columns_size);
    for (Word** piece : {&k_rows, &v_rows}) *piece = carver.Take<Word>(PackedSize<kNr, Word>(kTile, d));
    k_columns = carver.Take<Word>(PackedSize<kNr, Word>(d, kTile));
    for (float** piece : {&p, &ds}) *piece = carver.Take<float>(kTile * kNr);
    ds_rows = carver.Take<Word>(kTile * Kernel::kRowWords);
    for (float** piece : {&dk, &dv}) *piece = carver.Take<float>(kTile / kNr * dk_panel);
    dq = carver.Take<float>(query_tiles * dq_tile);
    row = carver.Take<float>(PanelsOf(d, kNr) * kNr);
    buffer = carver.Take<uint32_t>(KeepMaskSize(kNr));
  }

  /// With the memory of the index-th tile of queries in the place of the first.
  BackwardScratch AtQueries(int64_t index) const {
    BackwardScratch at = *this;
    for (Word** piece : {&at.q_rows, &at.do_rows}) *piece += index * rows_size;
    for (Word** piece : {&at.q_columns, &at.do_columns}) *piece += index * columns_size;
    at.dq += index * dq_tile;
    return at;
  }
};

/// A tile of queries against a tile of keys.
struct TilePair {
  int64_t query0, queries, key0, keys;
};

/// Turns scores p and products ds = dO V^T, both (queries, kNr) for keys col0.., into P (dropped) and dS, for `rows`;
/// dS also into ds_rows, where the other rows, which see none of these keys, become zero.
template <class Kernel>
void DifferentiatePanel(const QueryHead& head, const AttentionShape& shape, const TilePair& pair, const Range& rows,
                        int64_t col0, const BackwardScratch<Kernel>& s) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const hn::RebindToUnsigned<Lanes> du;
  const auto scale = hn::Set(d, ScoreScale(shape.head_dim));
  const bool drops = shape.dropout.rate > 0;
  const auto drop_scale = hn::Set(d, drops ? DropoutScale(shape.dropout.rate) : 1.0f);
  const int64_t key0 = pair.key0 + col0;
  for (int64_t r = 0; r < pair.queries; ++r) {
    if (r >= rows.begin && r < rows.end) continue;
    for (int64_t v = 0; v < kNr; v += kLanes) {
      StoreInRow<Kernel>(hn::Zero(d), col0 + v, s.ds_rows + r * Kernel::kRowWords);
    }
  }
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t query = pair.query0 + r;
    const int64_t seen_begin = shape.FirstKey(query) - key0, seen_end = shape.EndKey(query) - key0;
    const uint32_t* masks = nullptr;
    if (drops) {
      const uint64_t element = head.random + static_cast<uint64_t>(query * shape.sequence + key0);
      masks = FillKeepMask(shape.dropout, element, kNr, s.buffer);
    }
    for (int64_t v = 0; v < kNr; v += kLanes) {
      float* p_at = s.p + r * kNr + v;
      float* ds_at = s.ds + r * kNr + v;
      auto p = Exp(d, hn::MulSub(hn::LoadU(d, p_at), scale, hn::Set(d, head.lse[query])));
      if (v + kLanes > seen_end || v < seen_begin) {  // also hides keys beyond the sequence's end
        const auto key = hn::Iota(di, static_cast<int32_t>(v));
        const auto seen = hn::And(hn::Gt(hn::Set(di, static_cast<int32_t>(seen_end)), key),
                                  hn::Gt(key, hn::Set(di, static_cast<int32_t>(seen_begin - 1))));
        p = hn::IfThenElseZero(hn::RebindMask(d, seen), p);
      }
      auto dp = hn::LoadU(d, ds_at);
      auto dropped = p;
      if (drops) {
        const auto keep = hn::BitCast(d, hn::LoadU(du, masks + v));
        dp = hn::And(hn::Mul(dp, drop_scale), keep);
        dropped = hn::And(hn::Mul(p, drop_scale), keep);
      }
      hn::StoreU(dropped, d, p_at);
      const auto ds = hn::Mul(hn::Mul(p, hn::Sub(dp, hn::Set(d, head.delta[query]))), scale);
      hn::StoreU(ds, d, ds_at);
      StoreInRow<Kernel>(ds, col0 + v, s.ds_rows + r * Kernel::kRowWords);
    }
  }
}

/// All products of one pair of tiles. Adds to dk and dv if `want_keys`, to dq (one tile) if `want_queries`.
template <class Kernel>
void BackwardPair(const QueryHead& head, const AttentionShape& shape, const TilePair& pair, bool want_keys,
                  bool want_queries, const BackwardScratch<Kernel>& s) {
  using Word = typename Kernel::Word;
  const int64_t d = shape.head_dim;
  const int64_t row_panel = PanelSize<Word>(kMr, d), column_panel = PanelSize<Word>(kMr, pair.queries);
  for (int64_t col0 = 0; col0 < pair.keys; col0 += kNr) {
    const int64_t panel = col0 / kNr, key_panel = panel * PanelSize<Word>(kNr, d);
    // The rows that see a key of the group, from a whole panel on.
    const int64_t group = col0 / kKeyGroup * kKeyGroup, group_end = std::min(pair.keys, group + kKeyGroup);
    const int64_t first = std::max<int64_t>(shape.FirstQuery(pair.key0 + group) - pair.query0, 0);
    const int64_t end = std::min(pair.queries, shape.EndQuery(pair.key0 + group_end - 1) - pair.query0);
    const int64_t row0 = std::min(first / kRowGroup * kRowGroup, pair.queries), rows = end - row0;
    float *p = s.p + row0 * kNr, *ds = s.ds + row0 * kNr;
    if (rows > 0) {
      MultiplyPanels<Kernel>(s.q_rows + row0 / kMr * row_panel, row_panel, false, rows, d, s.k_rows + key_panel, false,
                             p);
      MultiplyPanels<Kernel>(s.do_rows + row0 / kMr * row_panel, row_panel, false, rows, d, s.v_rows + key_panel, false,
                             ds);
    }
    DifferentiatePanel(head, shape, pair, {row0, std::max(row0, end)}, col0, s);
    if (want_keys && rows > 0) {
      const int64_t words0 = row0 / kValuesOf<Word> * kMr;
      MultiplyPanels<Kernel>(s.do_columns + words0, column_panel, false, d, rows, ToPanel<Kernel>(p, rows), true,
                             s.dv + panel * s.dk_panel);
      MultiplyPanels<Kernel>(s.q_columns + words0, column_panel, false, d, rows, ToPanel<Kernel>(ds, rows), true,
                             s.dk + panel * s.dk_panel);
    }
  }
  if (!want_queries) return;
  for (int64_t panel = 0; panel < PanelsOf(d, kNr); ++panel) {
    MultiplyPanels<Kernel>(s.ds_rows, kMr * Kernel::kRowWords, true, pair.queries, pair.keys,
                           s.k_columns + panel * PanelSize<Word>(kNr, pair.keys), true, s.dq + panel * kTile * kNr);
  }
}

template <class Kernel>
void PackKeys(const KeyValueHead& head, const TilePair& pair, int64_t d, bool for_queries,
              const BackwardScratch<Kernel>& s) {
  PackHeadRows<kNr>(head.k, pair.key0, pair.keys, d, s.k_rows);
  PackHeadRows<kNr>(head.v, pair.key0, pair.keys, d, s.v_rows);
  if (for_queries) PackHeadColumns<kNr>(head.k, pair.key0, pair.keys, d, s.k_columns);
}

template <class Kernel>
void PackQueries(const QueryHead& head, const TilePair& pair, int64_t d, bool for_keys,
                 const BackwardScratch<Kernel>& s) {
  PackHeadRows<kMr>(head.q, pair.query0, pair.queries, d, s.q_rows);
  PackHeadRows<kMr>(head.d_out, pair.query0, pair.queries, d, s.do_rows);
  if (!for_keys) return;
  PackHeadColumns<kMr>(head.q, pair.query0, pair.queries, d, s.q_columns);
  PackHeadColumns<kMr>(head.d_out, pair.query0, pair.queries, d, s.do_columns);
}

/// dK or dV, which are held transposed.
template <class Kernel>
void StoreKeys(const HeadMatrix& out, const TilePair& pair, const float* sums, int64_t d,
               const BackwardScratch<Kernel>& s) {
  for (int64_t key = 0; key < pair.keys; key += kNr) {
    StoreColumns(out, pair.key0 + key, std::min<int64_t>(kNr, pair.keys - key), sums + key / kNr * s.dk_panel, nullptr,
                 d);
  }
}

template <class Kernel>
void StoreQueries(const HeadMatrix& out, int64_t query0, int64_t queries, const float* dq, int64_t d,
                  const BackwardScratch<Kernel>& s) {
  for (int64_t r = 0; r < queries; ++r) {
    for (int64_t panel = 0; panel < PanelsOf(d, kNr); ++panel) {
      std::copy_n(dq + panel * kTile * kNr + r * kNr, kNr, s.row + panel * kNr);
    }
    StoreHeadRow(out, query0 + r, s.row, d);
  }
}

/// dK and dV of one tile of keys. `whole`: and its part of dQ for all heads of the group, whose queries are packed.
template <class Kernel>
void BackwardKeys(const BackwardCall& call, int64_t b, int64_t g, int64_t key0, bool whole,
                  const BackwardScratch<Kernel>& s) {
  const AttentionShape shape = call.shape.OfSequence(b);
  const int64_t d = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  const KeyValueHead keys = KeyValueHeadOf(call, b, g);
  TilePair pair = {0, 0, key0, std::min(kTile, shape.sequence - key0)};
  PackKeys(keys, pair, d, whole, s);
  for (float* sums : {s.dk, s.dv}) std::fill_n(sums, kTile / kNr * s.dk_panel, 0.0f);
  for (int64_t i = 0; i < group; ++i) {
    const QueryHead head = QueryHeadOf(call, b, g * group + i);
    const int64_t end = shape.EndQuery(key0 + pair.keys - 1);
    for (pair.query0 = shape.FirstQuery(key0) / kTile * kTile; pair.query0 < end; pair.query0 += kTile) {
      pair.queries = std::min(kTile, shape.sequence - pair.query0);
      const int64_t index = i * PanelsOf(shape.sequence, kTile) + pair.query0 / kTile;
      if (!whole) PackQueries(head, pair, d, true, s);
      BackwardPair(head, shape, pair, true, whole, whole ? s.AtQueries(index) : s);
    }
  }
  StoreKeys(keys.d_k, pair, s.dk, d, s);
  StoreKeys(keys.d_v, pair, s.dv, d, s);
}

/// dQ of one tile of queries of one head.
template <class Kernel>
void BackwardQueries(const BackwardCall& call, int64_t b, int64_t h, int64_t query0, const BackwardScratch<Kernel>& s) {
  const AttentionShape shape = call.shape.OfSequence(b);
  const int64_t d = shape.head_dim;
  const QueryHead head = QueryHeadOf(call, b, h);
  const KeyValueHead keys = KeyValueHeadOf(call, b, h / (shape.num_heads / shape.num_kv_heads));
  TilePair pair = {query0, std::min(kTile, shape.sequence - query0), 0, 0};
  PackQueries(head, pair, d, false, s);
  std::fill_n(s.dq, s.dq_tile, 0.0f);
  const int64_t end = shape.EndKey(query0 + pair.queries - 1);
  for (pair.key0 = shape.FirstKey(query0) / kTile * kTile; pair.key0 < end; pair.key0 += kTile) {
    pair.keys = std::min(kTile, shape.sequence - pair.key0);
    PackKeys(keys, pair, d, true, s);
    BackwardPair(head, shape, pair, false, true, s);
  }
  StoreQueries(head.d_q, query0, pair.queries, s.dq, d, s);
}

/// All of one key/value head and the query heads that read it.
template <class Kernel>
void BackwardGroup(const BackwardCall& call, int64_t b, int64_t g, const BackwardScratch<Kernel>& s) {
  const AttentionShape& shape = call.shape;
  const int64_t tiles = PanelsOf(shape.sequence, kTile), group = shape.num_heads / shape.num_kv_heads;
  std::fill_n(s.dq, group * tiles * s.dq_tile, 0.0f);
  const auto for_queries = [&](const auto& body) {
    for (int64_t i = 0; i < group * tiles; ++i) {
      const int64_t query0 = i % tiles * kTile;
      body(QueryHeadOf(call, b, g * group + i / tiles),
           TilePair{query0, std::min(kTile, shape.sequence - query0), 0, 0}, s.AtQueries(i));
    }
  };
  for_queries([&](const QueryHead& head, const TilePair& pair, const BackwardScratch<Kernel>& at) {
    PackQueries(head, pair, shape.head_dim, true, at);
  });
  for (int64_t tile = 0; tile < tiles; ++tile) BackwardKeys(call, b, g, tile * kTile, true, s);
  for_queries([&](const QueryHead& head, const TilePair& pair, const BackwardScratch<Kernel>& at) {
    StoreQueries(head.d_q, pair.query0, pair.queries, at.dq, shape.head_dim, at);
  });
}

/// delta (B, H, T) = sum over the head dimension of d_out * out.
template <typename T>
void RowProducts(const BackwardCall& call, int64_t row, float* delta) {
  const AttentionShape& shape = call.shape;
  const Eight d8;
  const int64_t b = row / shape.sequence, t = row % shape.sequence;
  const T* out = RowOf<T>(call.out, row);
  const T* d_out = RowOf<T>(call.d_out, row);
  for (int64_t h = 0; h < shape.num_heads; ++h) {
    auto sum = hn::Zero(d8);
    for (int64_t i = h * shape.head_dim; i < (h + 1) * shape.head_dim; i += 8) {
      sum = hn::MulAdd(LoadAsF32(d8, out + i), LoadAsF32(d8, d_out + i), sum);
    }
    delta[(b * shape.num_heads + h) * shape.sequence + t] = SumOf(sum);
  }
}

template <class Kernel>
void RunBackward(Executor& executor, const BackwardCall& call) {
  const AttentionShape& shape = call.shape;
  const int64_t tiles = PanelsOf(shape.sequence, kTile), group = shape.num_heads / shape.num_kv_heads;
  const int64_t pairs = shape.batch * shape.num_kv_heads;
  const int64_t query_bytes = 5 * group * tiles * kTile * PanelsOf(shape.head_dim, kNr) * kNr * 4;
  const bool whole = pairs >= 2 * executor.num_threads() && query_bytes <= kWholeQueryBytesMax;
  const int64_t query_tiles = whole ? group * tiles : 1;
  Carver count(nullptr);
  const BackwardScratch<Kernel> measured(count, shape.head_dim, query_tiles);
  const int64_t key_tasks = whole ? pairs : pairs * tiles;
  const int64_t query_tasks = whole ? 0 : shape.batch * shape.num_heads * tiles;
  ParallelForWithScratch(executor, key_tasks + query_tasks, count.bytes(), [&](int64_t task, void* memory) {
    Carver carver(memory);
    const BackwardScratch<Kernel> scratch(carver, shape.head_dim, query_tiles);
    const int64_t b = task % pairs / shape.num_kv_heads, g = task % shape.num_kv_heads;
    if (whole) {
      BackwardGroup(call, b, g, scratch);
    } else if (task < key_tasks) {
      BackwardKeys(call, b, g, task / pairs * kTile, false, scratch);
    } else {
      const int64_t rest = task - key_tasks, heads = shape.batch * shape.num_heads;
      const int64_t tile = tiles - 1 - rest / heads;  // the long ones first
      BackwardQueries(call, rest % heads / shape.num_heads, rest % shape.num_heads, tile * kTile, scratch);
    }
  });
}

/// `Kernel`: one that multiplies the dtype of qkv and d_out.
template <class Kernel>
void BackwardPass(Executor& executor, const Matrix& d_qkv, const ConstMatrix& d_out, const ConstMatrix& out,
                  const float* lse, const ConstMatrix& qkv, const AttentionShape& shape) {
  const int64_t rows = shape.batch * shape.sequence;
  const size_t bytes = static_cast<size_t>(rows * shape.num_heads) * sizeof(float);
  float* delta = static_cast<float*>(executor.Scratch(Executor::kShared, bytes));
  const BackwardCall call = {d_qkv, d_out, out, qkv, lse, shape, delta};
  const Pieces pieces = PiecesOfRows(rows, shape.num_heads * shape.head_dim);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const Range range = pieces.piece(task);
    for (int64_t r = range.begin; r < range.end; ++r) {
      out.dtype == DType::kBF16 ? RowProducts<uint16_t>(call, r, delta) : RowProducts<float>(call, r, delta);
    }
  });
  RunBackward<Kernel>(executor, call);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
