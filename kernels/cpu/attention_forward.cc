// Attention with an online softmax (Dao et al. 2022), one task per (sequence, head, tile of queries).
//
// Scores are computed transposed, S^T (keys, kNr queries) = K Q^T, so that a query is a lane: maxima and sums over keys
// are plain vector operations in key order (no reduction across lanes), and S^T, turned into probabilities in place, is
// already the packed B operand of O^T (D, kNr queries) += V^T P^T. Nothing of it leaves the first-level cache.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/head_tile-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

using Lanes = hn::CappedTag<float, kLanes>;
using LaneVec = hn::Vec<Lanes>;

/// Queries that are multiplied by the same keys, whatever kNr is: those of other queries' futures count as zero, which
/// is not nothing where a value is infinite.
constexpr int64_t kQueryGroup = 32;

/// Queries of a task: keys and values are packed again for each.
constexpr int64_t kQueryTile = 2 * kTile;

/// Scratch memory of one task. Panels are of kNr queries.
struct ForwardScratch {
  float* q;       // packed B: (queries, D)
  float* k;       // packed A: (keys, D)
  float* v;       // packed A: (D, keys)
  float* p;       // (keys, kNr)
  float* o;       // per panel: (D rounded up to kMr, kNr)
  float* max;     // (queries): largest scaled score so far
  float* sum;     // (queries): sum of exp(score - max)
  float* keep;    // masks: (keys, kNr), as bits
  float* buffer;  // one query's masks
  int64_t o_panel;

  ForwardScratch(Carver& carver, int64_t head_dim) : o_panel(PanelsOf(head_dim, kMr) * kMr * kNr) {
    q = carver.Take(PackedSize<kNr>(kQueryTile, head_dim));
    k = carver.Take(PackedSize<kMr>(kTile, head_dim));
    v = carver.Take(PackedSize<kMr>(head_dim, kTile));
    p = carver.Take(kTile * kNr);
    o = carver.Take(kQueryTile / kNr * o_panel);
    max = carver.Take(kQueryTile);
    sum = carver.Take(kQueryTile);
    keep = carver.Take(kTile * kNr);
    buffer = carver.Take(KeepMaskSize(kTile));
  }
};

/// Turns products p (keys, kNr) of queries query0.. and keys key0.. into exp(scale p - max), future keys into 0,
/// updating max (of scale p) and sum of the queries and scaling what O^T (D, kNr) holds to the new maximum.
void SoftmaxPanel(float* p, int64_t keys, int64_t key0, int64_t query0, float scale, float* max, float* sum, float* o,
                  int64_t head_dim) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  for (int64_t v = 0; v < kNr; v += kLanes) {
    // Lane i sees keys up to its own position: key offset c is hidden where c > limit.
    const auto limit = hn::Iota(di, static_cast<int32_t>(query0 + v - key0));
    const LaneVec old_max = hn::LoadU(d, max + v);
    LaneVec largest = hn::Set(d, -INFINITY);
    const int64_t seen_by_all = std::clamp<int64_t>(query0 + v - key0 + 1, 0, keys);
    for (int64_t c = 0; c < seen_by_all; ++c) largest = hn::Max(largest, hn::LoadU(d, p + c * kNr + v));
    for (int64_t c = seen_by_all; c < keys; ++c) {
      const auto hidden = hn::RebindMask(d, hn::Gt(hn::Set(di, static_cast<int32_t>(c)), limit));
      const LaneVec score = hn::IfThenElse(hidden, hn::Set(d, -INFINITY), hn::LoadU(d, p + c * kNr + v));
      hn::StoreU(score, d, p + c * kNr + v);
      largest = hn::Max(largest, score);
    }
    const LaneVec factor = hn::Set(d, scale), new_max = hn::Max(old_max, hn::Mul(largest, factor));
    LaneVec total = hn::Zero(d);
    for (int64_t c = 0; c < keys; ++c) {
      const LaneVec e = Exp(d, hn::MulSub(hn::LoadU(d, p + c * kNr + v), factor, new_max));
      hn::StoreU(e, d, p + c * kNr + v);
      total = hn::Add(total, e);
    }
    const LaneVec rescale = Exp(d, hn::Sub(old_max, new_max));  // 0 in the first tile, where old_max = -infinity
    hn::StoreU(new_max, d, max + v);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + v), rescale, total), d, sum + v);
    if (hn::AllTrue(d, hn::Eq(rescale, hn::Set(d, 1.0f)))) continue;
    for (int64_t i = 0; i < head_dim; ++i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, o + i * kNr + v), rescale), d, o + i * kNr + v);
    }
  }
}

/// Drops probabilities p (keys, kNr). Elements of a query are consecutive, those of a key are `sequence` apart.
void DropPanel(const Dropout& dropout, uint64_t first, int64_t sequence, int64_t keys, int64_t queries,
               const ForwardScratch& s) {
  uint32_t* keep = reinterpret_cast<uint32_t*>(s.keep);
  for (int64_t lane = 0; lane < queries; ++lane) {
    const uint32_t* masks = FillKeepMask(dropout, first + static_cast<uint64_t>(lane * sequence), keys,
                                         reinterpret_cast<uint32_t*>(s.buffer));
    for (int64_t c = 0; c < keys; ++c) keep[c * kNr + lane] = masks[c];
  }
  const Lanes d;
  const auto scale = hn::Set(d, DropoutScale(dropout.rate));
  for (int64_t i = 0; i < keys * kNr; i += kLanes) {
    const auto mask = hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<Lanes>(), keep + i));
    hn::StoreU(hn::And(hn::Mul(hn::LoadU(d, s.p + i), scale), mask), d, s.p + i);
  }
}

/// One call's arguments with one head picked.
struct ForwardHead {
  HeadMatrix q, k, v, out;
  float* lse;       // (T)
  uint64_t random;  // dropout element of query 0, key 0
};

/// The panels of one tile of queries against one tile of keys.
void AttendTile(const ForwardHead& head, const AttentionShape& shape, int64_t query0, int64_t queries, int64_t key0,
                const ForwardScratch& s) {
  const int64_t d = shape.head_dim;
  const int64_t tile_keys = std::min({kTile, shape.sequence - key0, query0 + queries - key0});
  PackHeadRows<kMr>(head.k, key0, tile_keys, d, s.k);
  PackHeadColumns<kMr>(head.v, key0, tile_keys, d, s.v);
  for (int64_t first = 0; first < queries; first += kNr) {
    const int64_t panel = first / kNr, lanes = std::min<int64_t>(kNr, queries - first);
    const int64_t seen = std::min(queries, (first / kQueryGroup + 1) * kQueryGroup);
    const int64_t keys = std::min(tile_keys, query0 + seen - key0);
    if (keys <= 0) continue;
    float* o = s.o + panel * s.o_panel;
    MultiplyPanels(s.k, PanelSize(kMr, d), keys, d, s.q + panel * PanelSize(kNr, d), false, s.p);
    SoftmaxPanel(s.p, keys, key0, query0 + first, ScoreScale(d), s.max + first, s.sum + first, o, d);
    if (shape.dropout.rate > 0) {
      const int64_t element = (query0 + first) * shape.sequence + key0;
      DropPanel(shape.dropout, head.random + static_cast<uint64_t>(element), shape.sequence, keys, lanes, s);
    }
    MultiplyPanels(s.v, PanelSize(kMr, tile_keys), d, keys, s.p, true, o);
  }
}

void AttendQueries(const ForwardHead& head, const AttentionShape& shape, int64_t query0, const ForwardScratch& s) {
  const int64_t d = shape.head_dim, queries = std::min(kQueryTile, shape.sequence - query0);
  PackHeadRows<kNr>(head.q, query0, queries, d, s.q);
  std::fill_n(s.o, PanelsOf(queries, kNr) * s.o_panel, 0.0f);
  std::fill_n(s.max, kQueryTile, -INFINITY);
  std::fill_n(s.sum, kQueryTile, 0.0f);
  for (int64_t key0 = 0; key0 < query0 + queries; key0 += kTile) {
    AttendTile(head, shape, query0, queries, key0, s);
  }
  for (int64_t i = 0; i < queries; i += kNr) {
    StoreColumns(head.out, query0 + i, std::min<int64_t>(kNr, queries - i), s.o + i / kNr * s.o_panel, s.sum + i, d);
  }
  for (int64_t i = 0; i < queries; ++i) {
    head.lse[query0 + i] = s.max[i] + static_cast<float>(portable::Log(double{s.sum[i]}));
  }
}

// clang-tidy misses that ForwardHead is written through.
// NOLINTNEXTLINE(readability-non-const-parameter)
void AttentionForward(Executor& executor, const Matrix& out, float* lse, const ConstMatrix& qkv,
                      const AttentionShape& shape) {
  const int64_t d = shape.head_dim, heads = shape.num_heads, t = shape.sequence, group = heads / shape.num_kv_heads;
  const int64_t tiles = PanelsOf(t, kQueryTile);
  Carver count(nullptr);
  const ForwardScratch measured(count, d);
  ParallelFor(executor, shape.batch * heads * tiles, [&](int64_t task, int thread) {
    const int64_t tile = tiles - 1 - task / (shape.batch * heads);  // the long ones first
    const int64_t b = task % (shape.batch * heads) / heads, h = task % heads;
    Carver carver(executor.Scratch(thread, count.bytes()));
    const ForwardScratch scratch(carver, d);
    const ForwardHead head = {HeadOf(qkv, b, t, h * d),
                              HeadOf(qkv, b, t, (heads + h / group) * d),
                              HeadOf(qkv, b, t, (heads + shape.num_kv_heads + h / group) * d),
                              HeadOf(out, b, t, h * d),
                              lse + (b * heads + h) * t,
                              static_cast<uint64_t>((b * heads + h) * t) * static_cast<uint64_t>(t)};
    AttendQueries(head, shape, tile * kQueryTile, scratch);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(AttentionForward);

void CpuOps::AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(AttentionForward)(executor_, out, lse, qkv, shape);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
