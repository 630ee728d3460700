// The backward pass of attention: probabilities are recomputed tile by tile from the log-sum-exp (Dao et al. 2022).
//
// With delta[i] = sum over d of d_out[i] out[i], for each pair of a tile of queries and a tile of keys:
//   P = exp(scale Q K^T - lse)      dV += P^T dO      dS = scale P (dO V^T - delta)      dK += dS^T Q      dQ += dS K
//
// P and dS are computed as (queries, kNr keys), which is the packed B operand of dV^T (D, keys) += dO^T P and of
// dK^T += Q^T dS; for dQ, dS is packed once more as an A operand.
//
// Work is cut in one of two ways. With as many (sequence, key/value head) pairs as keep all threads busy, one task does
// a pair: five products, with dQ of the whole sequence in scratch memory. Otherwise dK and dV are tasks of tiles of
// keys and dQ of tiles of queries: seven products. Both add in the same order (keys ascending into dQ; heads, then
// queries, ascending into dK and dV), so which way was taken, which may depend on the number of threads, shows in no
// bit.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/head_tile-inl.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

using Lanes = hn::CappedTag<float, kLanes>;

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

QueryHead QueryHeadOf(const BackwardCall& call, int64_t b, int64_t h) {
  const int64_t t = call.shape.sequence, d = call.shape.head_dim, head = b * call.shape.num_heads + h;
  return {HeadOf(call.qkv, b, t, h * d), HeadOf(call.d_out, b, t, h * d), HeadOf(call.d_qkv, b, t, h * d),
          call.lse + head * t,           call.delta + head * t,           static_cast<uint64_t>(head * t * t)};
}

KeyValueHead KeyValueHeadOf(const BackwardCall& call, int64_t b, int64_t g) {
  const int64_t t = call.shape.sequence, d = call.shape.head_dim;
  const int64_t k = (call.shape.num_heads + g) * d, v = k + call.shape.num_kv_heads * d;
  return {HeadOf(call.qkv, b, t, k), HeadOf(call.qkv, b, t, v), HeadOf(call.d_qkv, b, t, k),
          HeadOf(call.d_qkv, b, t, v)};
}

/// Scratch memory of one task.
struct BackwardScratch {
  float *q_rows, *do_rows;        // packed A: (queries, D)
  float *q_columns, *do_columns;  // packed A: (D, queries)
  float *k_rows, *v_rows;         // packed B: (keys, D)
  float* k_columns;               // packed B: (D, keys)
  float *p, *ds;                  // (queries, kNr)
  float* ds_packed;               // packed A: (queries, keys)
  float *dk, *dv;                 // per panel of kNr keys: (D rounded up to kMr, kNr)
  float* dq;                      // per tile of queries, per panel of kNr of D: (queries, kNr)
  float* row;                     // (D)
  float* buffer;                  // masks of one query
  int64_t dk_panel, dq_tile, rows_size, columns_size;

  /// `query_tiles`: whose queries are packed and whose dQ is held at the same time.
  BackwardScratch(Carver& carver, int64_t d, int64_t query_tiles)
      : dk_panel(PanelsOf(d, kMr) * kMr * kNr),
        dq_tile(PanelsOf(d, kNr) * kTile * kNr),
        rows_size(PackedSize<kMr>(kTile, d)),
        columns_size(PackedSize<kMr>(d, kTile)) {
    for (float** piece : {&q_rows, &do_rows}) *piece = carver.Take(query_tiles * rows_size);
    for (float** piece : {&q_columns, &do_columns}) *piece = carver.Take(query_tiles * columns_size);
    for (float** piece : {&k_rows, &v_rows}) *piece = carver.Take(PackedSize<kNr>(kTile, d));
    k_columns = carver.Take(PackedSize<kNr>(d, kTile));
    for (float** piece : {&p, &ds}) *piece = carver.Take(kTile * kNr);
    ds_packed = carver.Take(PackedSize<kMr>(kTile, kTile));
    for (float** piece : {&dk, &dv}) *piece = carver.Take(kTile / kNr * dk_panel);
    dq = carver.Take(query_tiles * dq_tile);
    row = carver.Take(PanelsOf(d, kNr) * kNr);
    buffer = carver.Take(KeepMaskSize(kNr));
  }

  /// With the memory of the index-th tile of queries in the place of the first.
  BackwardScratch AtQueries(int64_t index) const {
    BackwardScratch at = *this;
    for (float** piece : {&at.q_rows, &at.do_rows}) *piece += index * rows_size;
    for (float** piece : {&at.q_columns, &at.do_columns}) *piece += index * columns_size;
    at.dq += index * dq_tile;
    return at;
  }
};

/// A tile of queries against a tile of keys.
struct TilePair {
  int64_t query0, queries, key0, keys;
};

/// Turns scores p and products ds = dO V^T, both (queries, kNr) for keys col0.., into P (dropped) and dS, for rows from
/// `row0` on.
void DifferentiatePanel(const QueryHead& head, const AttentionShape& shape, const TilePair& pair, int64_t row0,
                        int64_t col0, const BackwardScratch& s) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const hn::RebindToUnsigned<Lanes> du;
  const auto scale = hn::Set(d, ScoreScale(shape.head_dim));
  const bool drops = shape.dropout.rate > 0;
  const auto drop_scale = hn::Set(d, drops ? DropoutScale(shape.dropout.rate) : 1.0f);
  const int64_t key0 = pair.key0 + col0;
  for (int64_t r = row0; r < pair.queries; ++r) {
    const int64_t query = pair.query0 + r;
    const uint32_t* masks = nullptr;
    if (drops) {
      const uint64_t element = head.random + static_cast<uint64_t>(query * shape.sequence + key0);
      masks = FillKeepMask(shape.dropout, element, kNr, reinterpret_cast<uint32_t*>(s.buffer));
    }
    for (int64_t v = 0; v < kNr; v += kLanes) {
      float* p_at = s.p + r * kNr + v;
      float* ds_at = s.ds + r * kNr + v;
      auto p = Exp(d, hn::MulSub(hn::LoadU(d, p_at), scale, hn::Set(d, head.lse[query])));
      if (key0 + v + kLanes > query) {  // also hides keys beyond the sequence's end
        const auto seen =
            hn::Gt(hn::Set(di, static_cast<int32_t>(query - key0 + 1)), hn::Iota(di, static_cast<int32_t>(v)));
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
      hn::StoreU(hn::Mul(hn::Mul(p, hn::Sub(dp, hn::Set(d, head.delta[query]))), scale), d, ds_at);
    }
  }
}

/// Packs dS (queries, kNr) of keys col0.. as part of the A operand of dQ. Rows above `row0` see none of these keys.
void PackScoreGradient(const TilePair& pair, int64_t row0, int64_t col0, const BackwardScratch& s) {
  std::fill_n(s.ds, row0 * kNr, 0.0f);
  const int64_t depth = std::min<int64_t>(kNr, pair.keys - col0);
  for (int64_t r = 0; r < pair.queries; r += kMr) {
    PackAcross<kMr>(s.ds + r * kNr, kNr, std::min<int64_t>(kMr, pair.queries - r), depth,
                    s.ds_packed + r / kMr * PanelSize(kMr, kTile) + col0 * kMr);
  }
}

/// All products of one pair of tiles. Adds to dk and dv if `want_keys`, to dq (one tile) if `want_queries`.
void BackwardPair(const QueryHead& head, const AttentionShape& shape, const TilePair& pair, bool want_keys,
                  bool want_queries, const BackwardScratch& s) {
  const int64_t d = shape.head_dim, row_panel = PanelSize(kMr, d), column_panel = PanelSize(kMr, pair.queries);
  for (int64_t col0 = 0; col0 < pair.keys; col0 += kNr) {
    const int64_t panel = col0 / kNr;
    // Rows before the first that sees key col0 are left out, in whole panels.
    const int64_t first = pair.key0 + col0 / kKeyGroup * kKeyGroup - pair.query0;
    const int64_t row0 = std::max<int64_t>(first, 0) / kRowGroup * kRowGroup;
    const int64_t rows = pair.queries - row0;
    if (rows > 0) {
      MultiplyPanels(s.q_rows + row0 / kMr * row_panel, row_panel, rows, d, s.k_rows + panel * PanelSize(kNr, d), false,
                     s.p + row0 * kNr);
      MultiplyPanels(s.do_rows + row0 / kMr * row_panel, row_panel, rows, d, s.v_rows + panel * PanelSize(kNr, d),
                     false, s.ds + row0 * kNr);
      DifferentiatePanel(head, shape, pair, row0, col0, s);
    }
    if (want_keys && rows > 0) {
      MultiplyPanels(s.do_columns + row0 * kMr, column_panel, d, rows, s.p + row0 * kNr, true,
                     s.dv + panel * s.dk_panel);
      MultiplyPanels(s.q_columns + row0 * kMr, column_panel, d, rows, s.ds + row0 * kNr, true,
                     s.dk + panel * s.dk_panel);
    }
    if (want_queries) PackScoreGradient(pair, std::min(row0, pair.queries), col0, s);
  }
  if (!want_queries) return;
  for (int64_t panel = 0; panel < PanelsOf(d, kNr); ++panel) {
    MultiplyPanels(s.ds_packed, PanelSize(kMr, kTile), pair.queries, pair.keys,
                   s.k_columns + panel * PanelSize(kNr, pair.keys), true, s.dq + panel * kTile * kNr);
  }
}

void PackKeys(const KeyValueHead& head, const TilePair& pair, int64_t d, bool for_queries, const BackwardScratch& s) {
  PackHeadRows<kNr>(head.k, pair.key0, pair.keys, d, s.k_rows);
  PackHeadRows<kNr>(head.v, pair.key0, pair.keys, d, s.v_rows);
  if (for_queries) PackHeadColumns<kNr>(head.k, pair.key0, pair.keys, d, s.k_columns);
}

void PackQueries(const QueryHead& head, const TilePair& pair, int64_t d, bool for_keys, const BackwardScratch& s) {
  PackHeadRows<kMr>(head.q, pair.query0, pair.queries, d, s.q_rows);
  PackHeadRows<kMr>(head.d_out, pair.query0, pair.queries, d, s.do_rows);
  if (!for_keys) return;
  PackHeadColumns<kMr>(head.q, pair.query0, pair.queries, d, s.q_columns);
  PackHeadColumns<kMr>(head.d_out, pair.query0, pair.queries, d, s.do_columns);
}

/// dK or dV, which are held transposed.
void StoreKeys(const HeadMatrix& out, const TilePair& pair, const float* sums, int64_t d, const BackwardScratch& s) {
  for (int64_t key = 0; key < pair.keys; key += kNr) {
    StoreColumns(out, pair.key0 + key, std::min<int64_t>(kNr, pair.keys - key), sums + key / kNr * s.dk_panel, nullptr,
                 d);
  }
}

void StoreQueries(const HeadMatrix& out, int64_t query0, int64_t queries, const float* dq, int64_t d,
                  const BackwardScratch& s) {
  for (int64_t r = 0; r < queries; ++r) {
    for (int64_t panel = 0; panel < PanelsOf(d, kNr); ++panel) {
      std::copy_n(dq + panel * kTile * kNr + r * kNr, kNr, s.row + panel * kNr);
    }
    StoreHeadRow(out, query0 + r, s.row, d);
  }
}

/// dK and dV of one tile of keys. `whole`: and its part of dQ for all heads of the group, whose queries are packed.
void BackwardKeys(const BackwardCall& call, int64_t b, int64_t g, int64_t key0, bool whole, const BackwardScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  const KeyValueHead keys = KeyValueHeadOf(call, b, g);
  TilePair pair = {0, 0, key0, std::min(kTile, shape.sequence - key0)};
  PackKeys(keys, pair, d, whole, s);
  for (float* sums : {s.dk, s.dv}) std::fill_n(sums, kTile / kNr * s.dk_panel, 0.0f);
  for (int64_t i = 0; i < group; ++i) {
    const QueryHead head = QueryHeadOf(call, b, g * group + i);
    for (pair.query0 = key0; pair.query0 < shape.sequence; pair.query0 += kTile) {
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
void BackwardQueries(const BackwardCall& call, int64_t b, int64_t h, int64_t query0, const BackwardScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_dim;
  const QueryHead head = QueryHeadOf(call, b, h);
  const KeyValueHead keys = KeyValueHeadOf(call, b, h / (shape.num_heads / shape.num_kv_heads));
  TilePair pair = {query0, std::min(kTile, shape.sequence - query0), 0, 0};
  PackQueries(head, pair, d, false, s);
  std::fill_n(s.dq, s.dq_tile, 0.0f);
  for (pair.key0 = 0; pair.key0 <= query0; pair.key0 += kTile) {
    pair.keys = std::min(kTile, shape.sequence - pair.key0);
    PackKeys(keys, pair, d, true, s);
    BackwardPair(head, shape, pair, false, true, s);
  }
  StoreQueries(head.d_q, query0, pair.queries, s.dq, d, s);
}

/// All of one key/value head and the query heads that read it.
void BackwardGroup(const BackwardCall& call, int64_t b, int64_t g, const BackwardScratch& s) {
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
  for_queries([&](const QueryHead& head, const TilePair& pair, const BackwardScratch& at) {
    PackQueries(head, pair, shape.head_dim, true, at);
  });
  for (int64_t tile = 0; tile < tiles; ++tile) BackwardKeys(call, b, g, tile * kTile, true, s);
  for_queries([&](const QueryHead& head, const TilePair& pair, const BackwardScratch& at) {
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

void RunBackward(Executor& executor, const BackwardCall& call) {
  const AttentionShape& shape = call.shape;
  const int64_t tiles = PanelsOf(shape.sequence, kTile), group = shape.num_heads / shape.num_kv_heads;
  const int64_t pairs = shape.batch * shape.num_kv_heads;
  const int64_t query_bytes = 5 * group * tiles * kTile * PanelsOf(shape.head_dim, kNr) * kNr * 4;
  const bool whole = pairs >= 2 * executor.num_threads() && query_bytes <= kWholeQueryBytesMax;
  const int64_t query_tiles = whole ? group * tiles : 1;
  Carver count(nullptr);
  const BackwardScratch measured(count, shape.head_dim, query_tiles);
  const int64_t key_tasks = whole ? pairs : pairs * tiles;
  const int64_t query_tasks = whole ? 0 : shape.batch * shape.num_heads * tiles;
  ParallelFor(executor, key_tasks + query_tasks, [&](int64_t task, int thread) {
    Carver carver(executor.Scratch(thread, count.bytes()));
    const BackwardScratch scratch(carver, shape.head_dim, query_tiles);
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

void AttentionBackward(Executor& executor, const Matrix& d_qkv, const ConstMatrix& d_out, const ConstMatrix& out,
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
  RunBackward(executor, call);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(AttentionBackward);

void CpuOps::AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                               const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(executor_, d_qkv, d_out, out, lse, qkv, shape);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
