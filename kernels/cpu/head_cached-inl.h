// Attention of rows whose sequences' keys and values are kept (CachedAttentionArgs), one task per (piece of rows,
// key/value head).
//
// Several rows of a sequence are what head_forward-inl.h has queries for, somewhere in their sequence. A single row
// would fill one lane of it. Here its query heads that share keys are the rows of A, and keys and values the columns of
// B: S (heads, keys) = Q K^T, O (heads, D) += P V. The bits are those of head_forward-inl.h, because every element is
// the same chain of the same products: of a score over D; of a sum over the keys of a tile, which begins at the same
// multiples of kTile; of the exponentials over keys in their order.
//
// Included once per instruction set, after hwy/foreach_target.h; see attention.cc.

#if defined(HOLDFAST_KERNELS_CPU_HEAD_CACHED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_HEAD_CACHED_INL_H_
#undef HOLDFAST_KERNELS_CPU_HEAD_CACHED_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_HEAD_CACHED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/head_forward-inl.h"
#include "kernels/cpu/head_tile-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/executor.h"
#include "kernels/ops.h"
#include "kernels/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Rows `row` .. `row` + count - 1 of a call, of one sequence, from `position` on.
struct CachedPiece {
  int64_t row, count, position, sequence;
};

/// Cuts the rows into pieces of kQueryTile at most; `pieces` has room for as many as there are rows.
inline int64_t CutRows(const CachedAttentionArgs& args, CachedPiece* pieces) {
  int64_t count = 0;
  for (int64_t row = 0; row < args.qkv.rows; ++row) {
    const int64_t position = args.position_of[row], sequence = args.sequence_of[row];
    if (count > 0) {
      CachedPiece& last = pieces[count - 1];
      if (last.sequence == sequence && last.position + last.count == position && last.count < kQueryTile) {
        ++last.count;
        continue;
      }
    }
    pieces[count++] = {row, 1, position, sequence};
  }
  return count;
}

/// One key/value head of one sequence as it is kept.
inline HeadMatrix KeptHead(const CachedAttentionArgs& args, void* kept, int64_t sequence, int64_t kv_head) {
  const int64_t first = (sequence * args.num_kv_heads + kv_head) * args.capacity * args.head_dim;
  const DType dtype = args.qkv.dtype;
  return {static_cast<char*>(kept) + first * static_cast<int64_t>(SizeOf(dtype)), dtype, args.head_dim};
}

inline void KeepRow(const CachedAttentionArgs& args, int64_t row) {
  const auto element = static_cast<int64_t>(SizeOf(args.qkv.dtype));
  const int64_t heads = args.num_heads, kv_heads = args.num_kv_heads, bytes = args.head_dim * element;
  const char* from = static_cast<const char*>(args.qkv.data) + row * args.qkv.stride * element;
  for (int64_t g = 0; g < kv_heads; ++g) {
    const int64_t offset = args.position_of[row] * bytes;
    void* kept[] = {args.keys, args.values};
    for (int i = 0; i < 2; ++i) {
      char* to = static_cast<char*>(KeptHead(args, kept[i], args.sequence_of[row], g).data) + offset;
      std::memcpy(to, from + (heads + i * kv_heads + g) * bytes, static_cast<size_t>(bytes));
    }
  }
}

/// Scratch memory of one row's heads that share a key/value head.
template <class Kernel, class Word = typename Kernel::Word>
struct CachedScratch {
  Word* q;        // A by rows: (heads, Kernel::kRowWords)
  Word* p;        // likewise
  Word* kept;     // B panels: of keys (D, kNr), then of values (keys, kNr)
  float* scores;  // per panel of keys: (heads rounded up to kMr, kNr)
  float* o;       // per panel of D: likewise
  float *max, *sum;

  CachedScratch(Carver& carver, int64_t heads, int64_t head_dim) {
    const int64_t rows = PanelsOf(heads, kMr) * kMr;
    q = carver.Take<Word>(rows * Kernel::kRowWords);
    p = carver.Take<Word>(rows * Kernel::kRowWords);
    kept = carver.Take<Word>(std::max(PackedSize<kNr, Word>(kTile, head_dim), PackedSize<kNr, Word>(head_dim, kTile)));
    scores = carver.Take<float>(PanelsOf(kTile, kNr) * rows * kNr);
    o = carver.Take<float>(PanelsOf(head_dim, kNr) * rows * kNr);
    max = carver.Take<float>(heads);
    sum = carver.Take<float>(heads);
  }
};

/// Of one head: turns its scores of a tile (panels `panel` floats apart) into exp(scale score - max), those before
/// `begin` and from `end` on into 0, and puts them into row `p`. Returns what earlier sums are to be scaled by.
template <class Kernel>
float SoftmaxRow(float* scores, int64_t panel, int64_t begin, int64_t end, float scale, typename Kernel::Word* p,
                 float* max, float* sum) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const hn::CappedTag<float, 1> one;
  const auto at = [&](int64_t c) { return scores + c / kNr * panel + c % kNr; };
  const int64_t first = begin / kLanes * kLanes;
  LaneVec largest = hn::Set(d, -INFINITY);
  for (int64_t c = first; c < end; c += kLanes) {
    const auto key = hn::Iota(di, static_cast<int32_t>(c));
    const auto hidden = hn::Or(hn::Gt(hn::Set(di, static_cast<int32_t>(begin)), key),
                               hn::Gt(key, hn::Set(di, static_cast<int32_t>(end - 1))));
    const LaneVec score = hn::IfThenElse(hn::RebindMask(d, hidden), hn::Set(d, -INFINITY), hn::LoadU(d, at(c)));
    hn::StoreU(score, d, at(c));
    largest = hn::Max(largest, score);
  }
  const float old_max = *max, new_max = std::max(old_max, hn::GetLane(hn::MaxOfLanes(d, largest)) * scale);
  for (int64_t c = first; c < end; c += kLanes) {
    const LaneVec e = Exp(d, hn::MulSub(hn::LoadU(d, at(c)), hn::Set(d, scale), hn::Set(d, new_max)));
    hn::StoreU(e, d, at(c));
    StoreInRow<Kernel>(e, c, p);
  }
  float total = 0;
  for (int64_t c = begin; c < end; ++c) total += *at(c);
  const float rescale = hn::GetLane(Exp(one, hn::Set(one, old_max - new_max)));
  *max = new_max;
  *sum = std::fma(*sum, rescale, total);
  return rescale;
}

/// The query heads [head0, head0 + heads) of one row, which share the keys and values k and v (capacity, D).
template <class Kernel, class Word = typename Kernel::Word>
void AttendRow(const CachedAttentionArgs& args, const CachedPiece& piece, int64_t head0, int64_t heads,
               const HeadMatrix& k, const HeadMatrix& v, const CachedScratch<Kernel>& s) {
  const int64_t d = args.head_dim, rows = PanelsOf(heads, kMr) * kMr, panel = rows * kNr;
  const AttentionShape sees{.dropout = {}, .window = args.window};
  const int64_t first_key = sees.FirstKey(piece.position), end_key = sees.EndKey(piece.position);
  const ConstMatrix queries = {static_cast<const char*>(args.qkv.data) +
                                   piece.row * args.qkv.stride * static_cast<int64_t>(SizeOf(args.qkv.dtype)),
                               args.qkv.dtype, args.num_heads, d, d};
  Kernel::CopyRows(queries, head0, heads, 0, d, s.q, kMr * Kernel::kRowWords);
  std::fill_n(s.o, PanelsOf(d, kNr) * panel, 0.0f);
  std::fill_n(s.max, heads, kNoScore);
  std::fill_n(s.sum, heads, 0.0f);
  for (int64_t key0 = first_key / kTile * kTile; key0 < end_key; key0 += kTile) {
    const int64_t begin = std::max<int64_t>(first_key - key0, 0), end = std::min(kTile, end_key - key0);
    const int64_t first_panel = begin / kNr * kNr, size_k = PanelSize<Word>(kNr, d);
    PackHeadRows<kNr>(k, key0 + first_panel, end - first_panel, d, s.kept);
    for (int64_t c = first_panel; c < end; c += kNr) {
      MultiplyPanels<Kernel>(s.q, kMr * Kernel::kRowWords, true, heads, d, s.kept + (c - first_panel) / kNr * size_k,
                             false, s.scores + c / kNr * panel);
    }
    for (int64_t h = 0; h < heads; ++h) {
      Word* p = s.p + h * Kernel::kRowWords;
      const float rescale =
          SoftmaxRow<Kernel>(s.scores + h * kNr, panel, begin, end, ScoreScale(d), p, s.max + h, s.sum + h);
      if (rescale == 1.0f) continue;
      for (int64_t c = 0; c < PanelsOf(d, kNr); ++c) {
        float* o = s.o + c * panel + h * kNr;
        for (int64_t i = 0; i < kNr; ++i) o[i] *= rescale;
      }
    }
    const int64_t even = begin / 2 * 2, keys = end - even, size_v = PanelSize<Word>(kNr, keys);
    PackHeadColumns<kNr>(v, key0 + even, keys, d, s.kept);
    for (int64_t c = 0; c < PanelsOf(d, kNr); ++c) {
      MultiplyPanels<Kernel>(s.p + even / kValuesOf<Word>, kMr * Kernel::kRowWords, true, heads, keys,
                             s.kept + c * size_v, true, s.o + c * panel);
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    const HeadMatrix out = HeadOf(args.out, 0, 0, (head0 + h) * d);
    const auto factor = hn::Set(Tag8(), 1.0f / s.sum[h]);
    for (int64_t i = 0; i < d; i += 8) {
      const float* from = s.o + i / kNr * panel + h * kNr + i % kNr;
      StoreEight(out, piece.row, i, hn::Mul(hn::LoadU(Tag8(), from), factor));
    }
    if (args.lse == nullptr) continue;
    args.lse[piece.row * args.num_heads + head0 + h] = s.max[h] + static_cast<float>(portable::Log(double{s.sum[h]}));
  }
}

/// `Kernel`: one that multiplies qkv's dtype.
template <class Kernel>
void CachedPass(Executor& executor, const CachedAttentionArgs& args) {
  const int64_t d = args.head_dim, group = args.num_heads / args.num_kv_heads;
  auto* const pieces = static_cast<CachedPiece*>(
      executor.Scratch(Executor::kShared, static_cast<size_t>(args.qkv.rows) * sizeof(CachedPiece)));
  const int64_t count = CutRows(args, pieces);
  ParallelFor(executor, PiecesOfRows(args.qkv.rows, args.qkv.cols).count(), [&](int64_t task, int) {
    const Range rows = PiecesOfRows(args.qkv.rows, args.qkv.cols).piece(task);
    for (int64_t row = rows.begin; row < rows.end; ++row) KeepRow(args, row);
  });
  Carver of_row(nullptr), of_tile(nullptr);
  const CachedScratch<Kernel> row_scratch(of_row, group, d);
  const ForwardScratch<typename Kernel::Word> tile_scratch(of_tile, d, 1);
  const size_t bytes = std::max(of_row.bytes(), of_tile.bytes());
  ParallelForWithScratch(executor, count * args.num_kv_heads, bytes, [&](int64_t task, void* memory) {
    const CachedPiece& piece = pieces[count - 1 - task / args.num_kv_heads];
    const int64_t g = task % args.num_kv_heads;
    const HeadMatrix k = KeptHead(args, args.keys, piece.sequence, g);
    const HeadMatrix v = KeptHead(args, args.values, piece.sequence, g);
    Carver carver(memory);
    if (piece.count == 1) {
      return AttendRow<Kernel>(args, piece, g * group, group, k, v, CachedScratch<Kernel>(carver, group, d));
    }
    const ForwardScratch<typename Kernel::Word> scratch(carver, d, 1);
    const AttentionShape shape{
        .sequence = piece.position + piece.count, .head_dim = d, .dropout = {}, .window = args.window};
    for (int64_t h = g * group; h < (g + 1) * group; ++h) {
      const HeadMatrix q = HeadOf(args.qkv, 1, piece.row, h * d), out = HeadOf(args.out, 1, piece.row, h * d);
      float* const lse = args.lse == nullptr ? nullptr : args.lse + piece.row * args.num_heads + h;
      AttendQueries<Kernel>({q, k, v, out, lse, 0, piece.position, args.num_heads}, shape, piece.position, false,
                            scratch);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
