// Attention with an online softmax (Dao et al. 2022), one task per (sequence, key/value head), or with few of these per
// (sequence, head, tile of queries).
//
// Scores are computed transposed, S^T (keys, kNr queries) = K Q^T, so that a query is a lane: maxima and sums over keys
// are plain vector operations in key order (no reduction across lanes), and S^T, turned into probabilities in place, is
// already the packed B operand of O^T (D, kNr queries) += V^T P^T. Nothing of it leaves the first-level cache.
//
// Included once per instruction set, after hwy/foreach_target.h; see attention.cc.

#if defined(HOLDFAST_KERNELS_CPU_HEAD_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_HEAD_FORWARD_INL_H_
#undef HOLDFAST_KERNELS_CPU_HEAD_FORWARD_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_HEAD_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/head_tile-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/executor.h"
#include "kernels/ops.h"
#include "kernels/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

using LaneVec = hn::Vec<Lanes>;

/// Queries that are multiplied by the same keys, whatever kNr is: those that only others of them see count as zero,
/// which is not nothing where a value is infinite.
constexpr int64_t kQueryGroup = 32;

/// The maximum of no score. Not -infinity, which the maximum stays while a query sees none of a tile's keys: the
/// difference of two of them is not a number.
constexpr float kNoScore = -std::numeric_limits<float>::max();

/// Queries that are multiplied by one tile of keys after the other.
constexpr int64_t kQueryTile = 2 * kTile;

constexpr int64_t kWholeKeyBytesMax = int64_t{32} << 20;  // of packed keys and values in a thread's scratch memory

/// Scratch memory of one task. Panels are of kNr queries. Keys and values: of all tiles, if the task packs them once
/// for all its queries, else of one.
template <class Word>
struct ForwardScratch {
  int64_t o_panel, k_tile, v_tile;  // sizes
  Word* q;                          // packed B: (queries, D)
  Word* k;                          // packed A, per tile: (keys, D)
  Word* v;                          // packed A, per tile: (D, keys)
  float* p;                         // (keys, kNr)
  float* o;                         // per panel: (D rounded up to kMr, kNr)
  float* max;                       // (queries): largest scaled score so far
  float* sum;                       // (queries): sum of exp(score - max)
  uint32_t* keep;                   // masks: (keys, kNr)
  uint32_t* buffer;                 // one query's masks

  ForwardScratch(Carver& carver, int64_t head_dim, int64_t key_tiles)
      : o_panel(PanelsOf(head_dim, kMr) * kMr * kNr),
        k_tile(PackedSize<kMr, Word>(kTile, head_dim)),
        v_tile(PackedSize<kMr, Word>(head_dim, kTile)) {
    q = carver.Take<Word>(PackedSize<kNr, Word>(kQueryTile, head_dim));
    k = carver.Take<Word>(key_tiles * k_tile);
    v = carver.Take<Word>(key_tiles * v_tile);
    p = carver.Take<float>(kTile * kNr);
    o = carver.Take<float>(kQueryTile / kNr * o_panel);
    max = carver.Take<float>(kQueryTile);
    sum = carver.Take<float>(kQueryTile);
    keep = carver.Take<uint32_t>(kTile * kNr);
    buffer = carver.Take<uint32_t>(KeepMaskSize(kTile));
  }
};

/// Turns products p (keys, kNr) of queries query0.. and keys key0.. into exp(scale p - max), keys that a query does not
/// see into 0, updating max (of scale p) and sum of the queries and scaling what O^T (D, kNr) holds to the new maximum.
inline void SoftmaxPanel(float* p, int64_t keys, int64_t key0, int64_t query0, const AttentionShape& shape, float* max,
                         float* sum, float* o) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  for (int64_t v = 0; v < kNr; v += kLanes) {
    const int64_t query = query0 + v;  // of the first lane
    const LaneVec old_max = hn::LoadU(d, max + v);
    LaneVec largest = hn::Set(d, -INFINITY);
    const auto offset = [key0](int64_t key) { return static_cast<int32_t>(key - key0); };
    // What one lane does not see lies before the last lane's first key or after the first lane's last.
    const int64_t open_begin = std::clamp<int64_t>(shape.FirstKey(query + kLanes - 1) - key0, 0, keys);
    const int64_t open_end = std::clamp<int64_t>(shape.EndKey(query) - key0, open_begin, keys);
    const auto hide = [&](int64_t begin, int64_t end) HWY_ATTR {
      if (begin == end) return;
      int32_t of_lanes[2][kLanes];  // each query's first and last key
      for (int i = 0; i < kLanes; ++i) {
        of_lanes[0][i] = offset(shape.FirstKey(query + i));
        of_lanes[1][i] = offset(shape.EndKey(query + i) - 1);
      }
      const auto first = hn::LoadU(di, of_lanes[0]), last = hn::LoadU(di, of_lanes[1]);
      for (int64_t c = begin; c < end; ++c) {
        const auto key = hn::Set(di, static_cast<int32_t>(c));
        const auto hidden = hn::RebindMask(d, hn::Or(hn::Gt(key, last), hn::Gt(first, key)));
        const LaneVec score = hn::IfThenElse(hidden, hn::Set(d, -INFINITY), hn::LoadU(d, p + c * kNr + v));
        hn::StoreU(score, d, p + c * kNr + v);
        largest = hn::Max(largest, score);
      }
    };
    hide(0, open_begin);
    for (int64_t c = open_begin; c < open_end; ++c) largest = hn::Max(largest, hn::LoadU(d, p + c * kNr + v));
    hide(open_end, keys);
    const LaneVec factor = hn::Set(d, ScoreScale(shape.head_dim)), new_max = hn::Max(old_max, hn::Mul(largest, factor));
    LaneVec total = hn::Zero(d);
    for (int64_t c = 0; c < keys; ++c) {
      const LaneVec e = Exp(d, hn::MulSub(hn::LoadU(d, p + c * kNr + v), factor, new_max));
      hn::StoreU(e, d, p + c * kNr + v);
      total = hn::Add(total, e);
    }
    const LaneVec rescale = Exp(d, hn::Sub(old_max, new_max));  // 0 where old_max = kNoScore
    hn::StoreU(new_max, d, max + v);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + v), rescale, total), d, sum + v);
    if (hn::AllTrue(d, hn::Eq(rescale, hn::Set(d, 1.0f)))) continue;
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, o + i * kNr + v), rescale), d, o + i * kNr + v);
    }
  }
}

/// Drops probabilities p (keys, kNr). Elements of a query are consecutive, those of a key are `sequence` apart.
template <class Word>
void DropPanel(const Dropout& dropout, uint64_t first, int64_t sequence, int64_t keys, int64_t queries,
               const ForwardScratch<Word>& s, float* p) {
  for (int64_t lane = 0; lane < queries; ++lane) {
    const uint32_t* masks = FillKeepMask(dropout, first + static_cast<uint64_t>(lane * sequence), keys, s.buffer);
    for (int64_t c = 0; c < keys; ++c) s.keep[c * kNr + lane] = masks[c];
  }
  const Lanes d;
  const auto scale = hn::Set(d, DropoutScale(dropout.rate));
  for (int64_t i = 0; i < keys * kNr; i += kLanes) {
    const auto mask = hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<Lanes>(), s.keep + i));
    hn::StoreU(hn::And(hn::Mul(hn::LoadU(d, p + i), scale), mask), d, p + i);
  }
}

/// One call's arguments with one head picked.
struct ForwardHead {
  HeadMatrix q, k, v, out;
  float* lse;               // of row 0; null: not wanted
  uint64_t random;          // dropout element of query 0, key 0
  int64_t first_query = 0;  // the one in row 0 of q and out
  int64_t lse_step = 1;     // from one row's lse to the next one's
};

/// Packed keys and values from key0 on.
template <class Word>
struct KeyTile {
  const Word *k, *v;
  int64_t key0, keys;
};

template <class Word>
KeyTile<Word> PackKeyTile(const ForwardHead& head, int64_t head_dim, int64_t key0, int64_t keys, int64_t tile,
                          const ForwardScratch<Word>& s) {
  Word *k = s.k + tile * s.k_tile, *v = s.v + tile * s.v_tile;
  PackHeadRows<kMr>(head.k, key0, keys, head_dim, k);
  PackHeadColumns<kMr>(head.v, key0, keys, head_dim, v);
  return {k, v, key0, keys};
}

/// The panels of one tile of queries against one tile of keys.
template <class Kernel, class Word = typename Kernel::Word>
void AttendTile(const ForwardHead& head, const AttentionShape& shape, int64_t query0, int64_t queries,
                const KeyTile<Word>& tile, const ForwardScratch<Word>& s) {
  const int64_t d = shape.head_dim, key0 = tile.key0;
  for (int64_t first = 0; first < queries; first += kNr) {
    const int64_t panel = first / kNr, lanes = std::min<int64_t>(kNr, queries - first);
    const int64_t group = first / kQueryGroup * kQueryGroup, group_end = std::min(queries, group + kQueryGroup);
    // Keys that some query of the group sees, from a whole pair on; their products are computed from a whole panel on.
    const int64_t begin = std::max<int64_t>(shape.FirstKey(query0 + group) - key0, 0) / 2 * 2;
    const int64_t end = std::min(tile.keys, shape.EndKey(query0 + group_end - 1) - key0);
    if (end <= begin) continue;
    const int64_t row0 = begin / kMr * kMr, keys = end - begin;
    float *o = s.o + panel * s.o_panel, *p = s.p + begin * kNr;
    MultiplyPanels<Kernel>(tile.k + row0 / kMr * PanelSize<Word>(kMr, d), PanelSize<Word>(kMr, d), false, end - row0, d,
                           s.q + panel * PanelSize<Word>(kNr, d), false, s.p + row0 * kNr);
    SoftmaxPanel(p, keys, key0 + begin, query0 + first, shape, s.max + first, s.sum + first, o);
    if (shape.dropout.rate > 0) {
      const int64_t element = (query0 + first) * shape.sequence + key0 + begin;
      DropPanel(shape.dropout, head.random + static_cast<uint64_t>(element), shape.sequence, keys, lanes, s, p);
    }
    MultiplyPanels<Kernel>(tile.v + begin / kValuesOf<Word> * kMr, PanelSize<Word>(kMr, tile.keys), false, d, keys,
                           ToPanel<Kernel>(p, keys), true, o);
  }
}

/// `packed`: all keys and values are. Else a tile's are to the end of a pair, as an odd one's zero is multiplied by the
/// value beside it in either case, which may be infinite.
template <class Kernel, class Word = typename Kernel::Word>
void AttendQueries(const ForwardHead& head, const AttentionShape& shape, int64_t query0, bool packed,
                   const ForwardScratch<Word>& s) {
  const int64_t d = shape.head_dim, queries = std::min(kQueryTile, shape.sequence - query0);
  const int64_t row0 = query0 - head.first_query;
  PackHeadRows<kNr>(head.q, row0, queries, d, s.q);
  std::fill_n(s.o, PanelsOf(queries, kNr) * s.o_panel, 0.0f);
  std::fill_n(s.max, kQueryTile, kNoScore);
  std::fill_n(s.sum, kQueryTile, 0.0f);
  const int64_t end = shape.EndKey(query0 + queries - 1);
  for (int64_t key0 = shape.FirstKey(query0) / kTile * kTile; key0 < end; key0 += kTile) {
    const int64_t tile = key0 / kTile, keys = std::min(kTile, shape.sequence - key0);
    AttendTile<Kernel>(head, shape, query0, queries,
                       packed ? KeyTile<Word>{s.k + tile * s.k_tile, s.v + tile * s.v_tile, key0, keys}
                              : PackKeyTile(head, d, key0, std::min(keys, PanelsOf(end - key0, 2) * 2), 0, s),
                       s);
  }
  for (int64_t i = 0; i < queries; i += kNr) {
    StoreColumns(head.out, row0 + i, std::min<int64_t>(kNr, queries - i), s.o + i / kNr * s.o_panel, s.sum + i, d);
  }
  if (head.lse == nullptr) return;
  for (int64_t i = 0; i < queries; ++i) {
    head.lse[(row0 + i) * head.lse_step] = s.max[i] + static_cast<float>(portable::Log(double{s.sum[i]}));
  }
}

/// `Kernel`: one that multiplies qkv's dtype. With as many (sequence, key/value head) pairs as keep all threads busy,
/// one task does a pair and packs its keys once; otherwise a task is a tile of one head's queries.
template <class Kernel>  // clang-tidy misses that ForwardHead is written through.
// NOLINTNEXTLINE(readability-non-const-parameter)
void ForwardPass(Executor& executor, const Matrix& out, float* lse, const ConstMatrix& qkv,
                 const AttentionShape& shape) {
  using Scratch = ForwardScratch<typename Kernel::Word>;
  const int64_t d = shape.head_dim, heads = shape.num_heads, t = shape.sequence, group = heads / shape.num_kv_heads;
  const int64_t tiles = PanelsOf(t, kQueryTile), key_tiles = PanelsOf(t, kTile);
  const int64_t pairs = shape.batch * shape.num_kv_heads;
  const bool whole = pairs >= 2 * executor.num_threads() && key_tiles * 2 * kTile * d * 4 <= kWholeKeyBytesMax;
  const int64_t scratch_tiles = whole ? key_tiles : 1;
  Carver count(nullptr);
  const Scratch measured(count, d, scratch_tiles);
  const auto head_of = [&](int64_t b, int64_t h) -> ForwardHead {
    return {HeadOf(qkv, b, t, h * d),
            HeadOf(qkv, b, t, (heads + h / group) * d),
            HeadOf(qkv, b, t, (heads + shape.num_kv_heads + h / group) * d),
            HeadOf(out, b, t, h * d),
            lse + (b * heads + h) * t,
            static_cast<uint64_t>((b * heads + h) * t) * static_cast<uint64_t>(t)};
  };
  const int64_t tasks = whole ? pairs : shape.batch * heads * tiles;
  ParallelForWithScratch(executor, tasks, count.bytes(), [&](int64_t task, void* memory) {
    Carver carver(memory);
    const Scratch scratch(carver, d, scratch_tiles);
    if (!whole) {
      const int64_t tile = tiles - 1 - task / (shape.batch * heads);  // the long ones first
      const int64_t b = task % (shape.batch * heads) / heads;
      return AttendQueries<Kernel>(head_of(b, task % heads), shape.OfSequence(b), tile * kQueryTile, false, scratch);
    }
    const int64_t b = task / shape.num_kv_heads, head0 = task % shape.num_kv_heads * group;
    for (int64_t key0 = 0; key0 < t; key0 += kTile) {
      PackKeyTile(head_of(b, head0), d, key0, std::min(kTile, t - key0), key0 / kTile, scratch);
    }
    for (int64_t i = 0; i < group * tiles; ++i) {
      AttendQueries<Kernel>(head_of(b, head0 + i / tiles), shape.OfSequence(b), i % tiles * kQueryTile, true, scratch);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
