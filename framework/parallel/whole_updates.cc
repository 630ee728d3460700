#include "framework/parallel/whole_updates.h"

#include <algorithm>

#include "framework/base/status.h"
#include "framework/parallel/float_bytes.h"

namespace holdfast {
namespace {

/// A matrix begins at a multiple of this many elements, 256 bytes, as if it were allocated alone: which algorithm
/// cuBLASLt takes for a product, and so the product's bits, follows from where its operands lie.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

/// Of the products with a matrix's smaller Gram matrix.
double WorkOf(const ParameterSpec& p) {
  const auto rows = static_cast<double>(p.shape.rows()), cols = static_cast<double>(p.shape.cols());
  const double least = std::min(rows, cols);
  return least * least * (2 * std::max(rows, cols) + least);
}

}  // namespace

std::vector<int> OwnersOfMatrices(const ParameterLayout& layout, const Optimizer& optimizer, int size) {
  std::vector<int> owners(layout.parameters().size(), -1), taken;
  for (size_t p = 0; p < owners.size(); ++p) {
    if (optimizer.TakesWhole(layout.parameters()[p])) taken.push_back(static_cast<int>(p));
  }
  const auto work = [&](int p) { return WorkOf(layout.parameters()[static_cast<size_t>(p)]); };
  std::stable_sort(taken.begin(), taken.end(), [&](int a, int b) { return work(a) > work(b); });
  std::vector<double> load(static_cast<size_t>(size));
  for (const int p : taken) {
    const auto least = std::min_element(load.begin(), load.end());
    owners[static_cast<size_t>(p)] = static_cast<int>(least - load.begin());
    *least += work(p);
  }
  return owners;
}

double WholeUpdateBytes(const ParameterLayout& layout, const Optimizer& optimizer, int size, double held) {
  double elements = 0;
  int64_t workspace = 0;
  for (const ParameterSpec& p : layout.parameters()) {
    if (!optimizer.TakesWhole(p)) continue;
    elements += static_cast<double>(p.shape.elements());
    workspace = std::max(workspace, optimizer.WorkspaceElements(p));
  }
  const double exchanged = size == 1 ? 0 : elements * (2.0 / size + std::max(1.0 / size, held));
  return 4 * (elements * held + exchanged + static_cast<double>(workspace));
}

void WholeUpdates::Side::Add(int chunk, const Chunk& what) {
  const bool begins = what.first_row == 0;
  const bool follows = !begins && ranges.size() > first_range && ranges.back().end == chunk;
  if (begins) elements = Aligned(elements);
  if (!follows) ranges.push_back({chunk, chunk, elements, 0});
  ranges.back().end = chunk + 1;
  ranges.back().elements += what.elements;
  elements += what.elements;
}

void WholeUpdates::Side::EndRank() {
  elements = Aligned(elements);
  counts.push_back((elements - first_of_rank) * kFloatBytes);
  starts.push_back(first_of_rank * kFloatBytes);
  first_of_rank = elements;
  first_range = ranges.size();
}

WholeUpdates::WholeUpdates(const Dependencies& dependencies)
    : deps_(dependencies),
      map_(dependencies.state->map()),
      layout_(map_.layout()),
      place_(layout_.parameters().size(), -1) {}

absl::StatusOr<std::unique_ptr<WholeUpdates>> WholeUpdates::Create(const Dependencies& dependencies) {
  std::unique_ptr<WholeUpdates> updates(new WholeUpdates(dependencies));
  updates->Plan();
  if (!updates->TakesNothing()) RETURN_IF_ERROR(updates->Allocate());
  return updates;
}

// Both sides of both exchanges list chunks in the same order: by the other rank, then ascending.
void WholeUpdates::Plan() {
  const int size = deps_.world == nullptr ? 1 : deps_.world->size();
  owner_ = OwnersOfMatrices(layout_, *deps_.optimizer, size);
  if (TakesNothing()) return;
  for (size_t p = 0; p < owner_.size(); ++p) {
    if (owner_[p] != deps_.rank) continue;
    place_[p] = owned_elements_;
    owned_elements_ += Aligned(layout_.parameters()[p].shape.elements());
    mine_.push_back(static_cast<int>(p));
  }
  for (int r = 0; r < size; ++r) {
    for (int chunk = 0; chunk < static_cast<int>(layout_.chunks().size()); ++chunk) {
      const Chunk& what = layout_.chunks()[static_cast<size_t>(chunk)];
      const int owner = owner_[static_cast<size_t>(what.parameter)];
      if (owner != r && owner != deps_.rank) continue;
      const std::vector<int> holders = map_.Holders(chunk);
      const auto holds = [&](int rank) { return std::find(holders.begin(), holders.end(), rank) != holders.end(); };
      if (owner == r && holders.front() == deps_.rank) contributed_.Add(chunk, what);
      if (owner == r && holds(deps_.rank)) updated_.Add(chunk, what);
      if (owner == deps_.rank && holders.front() == r) collected_.Add(chunk, what);
      if (owner == deps_.rank && holds(r)) shipped_.Add(chunk, what);
    }
    for (Side* side : {&contributed_, &updated_, &collected_, &shipped_}) side->EndRank();
  }
}

absl::Status WholeUpdates::Allocate() {
  const auto allocate = [&](int64_t elements, const char* what) {
    return Buffer::Allocate(*deps_.device, static_cast<size_t>(elements * kFloatBytes), what);
  };
  ASSIGN_OR_RETURN(update_, allocate(updated_.elements, "updates"));
  if (deps_.world != nullptr) {
    ASSIGN_OR_RETURN(sent_, allocate(std::max(contributed_.elements, shipped_.elements), "updates to send"));
    ASSIGN_OR_RETURN(received_, allocate(collected_.elements, "contributions to updates"));
    ASSIGN_OR_RETURN(matrices_, allocate(owned_elements_, "whole matrices"));
  }
  int64_t workspace = 0;
  for (const int p : mine_) {
    workspace = std::max(workspace, deps_.optimizer->WorkspaceElements(layout_.parameters()[static_cast<size_t>(p)]));
  }
  ASSIGN_OR_RETURN(workspace_, allocate(workspace, "whole matrices"));
  updates_.assign(layout_.chunks().size(), nullptr);
  for (const BufferRange& range : updated_.ranges) {
    const float* at = update_.as<float>() + range.at;
    for (int chunk = range.first; chunk < range.end; ++chunk) {
      updates_[static_cast<size_t>(chunk)] = at;
      at += layout_.chunks()[static_cast<size_t>(chunk)].elements;
    }
  }
  return absl::OkStatus();
}

bool WholeUpdates::TakesNothing() const {
  return std::all_of(owner_.begin(), owner_.end(), [](int owner) { return owner < 0; });
}

int64_t WholeUpdates::PlaceOf(int chunk) const {
  const Chunk& what = layout_.chunks()[static_cast<size_t>(chunk)];
  return place_[static_cast<size_t>(what.parameter)] + what.offset -
         layout_.parameters()[static_cast<size_t>(what.parameter)].offset;
}

void WholeUpdates::Copy(float* to, const float* from, int64_t elements) const {
  deps_.stream->ops().Copy(to, from, static_cast<size_t>(elements * kFloatBytes));
}

absl::Status WholeUpdates::Exchange(const Side& out, float* from, const Side& in, float* to) {
  RETURN_IF_ERROR(deps_.stream->Synchronize());
  deps_.progress->waiting = true;
  absl::Status exchanged = deps_.world->AllToAllV(
      {AsBytes(static_cast<const float*>(from), out.elements), out.counts, out.starts},
      {AsBytes(to, in.elements), in.counts, in.starts}, std::chrono::steady_clock::now() + deps_.timeout);
  deps_.progress->waiting = false;
  ++deps_.progress->count;
  return exchanged;
}

absl::Status WholeUpdates::Prepare(absl::Span<const GradientPiece> gradients, const UpdateScalars& scalars,
                                   const std::stop_token& stop) {
  if (TakesNothing()) return absl::OkStatus();
  std::vector<const float*> gradient_of(layout_.chunks().size(), nullptr);
  for (const GradientPiece& piece : gradients) {
    const float* at = piece.gradient;
    for (int64_t chunk = piece.chunks.begin; chunk < piece.chunks.end; ++chunk) {
      gradient_of[static_cast<size_t>(chunk)] = at;
      at += layout_.chunks()[static_cast<size_t>(chunk)].elements;
    }
  }
  float* const out = deps_.world == nullptr ? update_.as<float>() : sent_.as<float>();
  const UpdateArguments arguments{.optimizer = deps_.optimizer, .scalars = scalars};
  for (const BufferRange& range : contributed_.ranges) {
    float* at = out + range.at;
    for (int chunk = range.first; chunk < range.end; ++chunk) {  // gradients of neighbours may lie apart
      deps_.state->Contribute(chunk, gradient_of[static_cast<size_t>(chunk)], arguments, at);
      at += layout_.chunks()[static_cast<size_t>(chunk)].elements;
    }
  }
  if (deps_.world == nullptr) return MakeMine(stop);
  RETURN_IF_ERROR(Exchange(contributed_, sent_.as<float>(), collected_, received_.as<float>()));
  for (const BufferRange& range : collected_.ranges) {
    Copy(matrices_.as<float>() + PlaceOf(range.first), received_.as<float>() + range.at, range.elements);
  }
  RETURN_IF_ERROR(MakeMine(stop));
  for (const BufferRange& range : shipped_.ranges) {
    Copy(sent_.as<float>() + range.at, matrices_.as<float>() + PlaceOf(range.first), range.elements);
  }
  return Exchange(shipped_, sent_.as<float>(), updated_, update_.as<float>());
}

// In a world of one the matrices lie whole in update_.
absl::Status WholeUpdates::MakeMine(const std::stop_token& stop) {
  float* const matrices = deps_.world == nullptr ? update_.as<float>() : matrices_.as<float>();
  for (const int p : mine_) {
    if (stop.stop_requested()) return StepStopped();
    RETURN_IF_ERROR(deps_.optimizer->MakeUpdate(*deps_.device, *deps_.stream,
                                                layout_.parameters()[static_cast<size_t>(p)],
                                                matrices + place_[static_cast<size_t>(p)], workspace_.as<float>()));
    ++deps_.progress->count;
  }
  return absl::OkStatus();
}

}  // namespace holdfast
