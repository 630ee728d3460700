#include "models/expert_parallel.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/nn/part_store.h"

namespace holdfast {
namespace {

constexpr int64_t kRoom = 2;       // rows that fit here, in microbatches' choices
constexpr int64_t kMaxHomes = 64;  // of a round

/// One value of each choice.
kernels::ExpertRows OneByOne(const kernels::ExpertRows& slots) {
  kernels::ExpertRows rows = slots;
  rows.chosen = 1;
  return rows;
}

kernels::ConstMatrix Column(const float* values, int64_t n) { return {values, DType::kF32, n, 1, 1}; }

}  // namespace

int64_t ExpertStep(UnitTensors of_experts) {
  if (of_experts.size() < 4) return 0;
  const auto bytes = static_cast<const char*>(of_experts[2].data) - static_cast<const char*>(of_experts[0].data);
  return bytes / static_cast<int64_t>(kernels::SizeOf(of_experts[0].dtype));
}

struct ExpertParallel::Here {
  Tensor x, d_y;              // (P, C), of which that of y takes the memory of x, and d_x too; d_y in the backward pass
  Tensor weights, d_weights;  // (P)
  Tensor gate_up, act;        // (S, 2F) and (S, F), of one home
  Tensor numbers;             // 0 .. S - 1, then for each home of a round the offsets of the experts here
};

struct ExpertParallel::Array {
  Tensor by_slot, sent, here;
  int64_t row_bytes() const { return by_slot.shape.cols() * static_cast<int64_t>(kernels::SizeOf(by_slot.dtype)); }
  void Reorder(const Pass& pass, const ExpertTraffic& traffic, bool to_send) const {
    for (const ExpertTraffic::Run& run : traffic.order) {
      void* const slots = holdfast::Rows(by_slot, run.slot, run.count).data;
      void* const places = holdfast::Rows(sent, run.place, run.count).data;
      pass.ops->Copy(to_send ? places : slots, to_send ? slots : places, static_cast<size_t>(run.count * row_bytes()));
    }
  }
};

ExpertParallel::Here ExpertParallel::Allocate(const Pass& pass, bool backward) const {
  const int64_t room = kRoom * slots(pass);
  const auto rows = [&] { return pass.arena->Allocate(pass.dtype, {room, hidden_size_}); };
  return {.x = rows(),
          .d_y = backward ? rows() : Tensor(),
          .weights = pass.Floats({room, 1}),
          .d_weights = backward ? pass.Floats({room, 1}) : Tensor(),
          .gate_up = pass.arena->Allocate(pass.dtype, {slots(pass), 2 * width_}),
          .act = pass.arena->Allocate(pass.dtype, {slots(pass), width_}),
          .numbers = pass.Floats({slots(pass) + kMaxHomes * (num_experts_ + 1)})};
}

// Where ranks' experts do not ascend with the ranks, rows are put in the order in which they are sent.
ExpertParallel::Array ExpertParallel::Outgoing(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot,
                                               const Tensor& here) const {
  const Tensor sent = pass.arena->Allocate(by_slot.dtype, by_slot.shape);
  const Array array{by_slot, traffic.order.empty() ? by_slot : sent, here};
  array.Reorder(pass, traffic, /*to_send=*/true);
  return array;
}

absl::Status ExpertParallel::PlanTraffic(const Pass& pass, int unit, const Rows* rows, ExpertTraffic* traffic) const {
  Exchange& exchange = pass.parts->exchange();
  const absl::Span<const int> servers = pass.parts->ServersOf(unit);
  std::vector<int32_t> offsets(static_cast<size_t>(num_experts_) + 1);
  if (rows != nullptr) {
    ASSIGN_OR_RETURN(offsets, pass.parts->Fetch(rows->slots.offsets, num_experts_ + 1));
  }
  *traffic = {};
  std::vector<int64_t> counts, experts_of;
  int64_t place = 0;
  bool in_order = true;
  for (int member = 0; member < exchange.size(); ++member) {
    traffic->places.push_back(place);
    experts_of.push_back(std::count(servers.begin(), servers.end(), member));
    for (size_t e = 0; e < servers.size(); ++e) {
      if (servers[e] != member) continue;
      counts.push_back(offsets[e + 1] - offsets[e]);
      if (counts.back() == 0) continue;
      in_order = in_order && offsets[e] == place;
      traffic->order.push_back({offsets[e], place, counts.back()});
      place += counts.back();
    }
    traffic->sent.push_back(place - traffic->places.back());
  }
  if (in_order) traffic->order.clear();
  ASSIGN_OR_RETURN(const std::vector<int64_t> received, exchange.AllToAllCounts(counts, experts_of));
  const auto here = experts_of[static_cast<size_t>(exchange.rank())];
  for (int64_t member = 0; member < exchange.size(); ++member) {
    const auto of_member = received.begin() + member * here;
    const bool negative = std::any_of(of_member, of_member + here, [](int64_t n) { return n < 0; });
    if (negative || std::accumulate(of_member, of_member + here, int64_t{0}) > slots(pass)) {
      return absl::InternalError(absl::StrCat("rank ", member, " of the group announces more rows than it can have"));
    }
    traffic->received.emplace_back(of_member, of_member + here);
  }
  return PlanRounds(pass, experts_of, traffic);
}

// Each server fills its room with one home after another, and tells each in which round it is.
absl::Status ExpertParallel::PlanRounds(const Pass& pass, absl::Span<const int64_t> experts_of,
                                        ExpertTraffic* traffic) const {
  const absl::Span<const int> homes = pass.parts->homes();
  const int64_t room = kRoom * slots(pass);
  const int64_t most = *std::max_element(experts_of.begin(), experts_of.end());
  traffic->sent_round.assign(experts_of.size(), 0);
  traffic->received_round.assign(experts_of.size(), 0);
  // What always fits needs no telling; all members see the same.
  if (std::ssize(homes) <= kMaxHomes && std::ssize(homes) * pass.rows() * std::min(chosen_, most) <= room) {
    return absl::OkStatus();
  }
  int64_t round = 0, rows = 0, homes_of_round = 0;
  for (const int home : homes) {
    const std::vector<int64_t>& of_home = traffic->received[static_cast<size_t>(home)];
    const int64_t more = std::accumulate(of_home.begin(), of_home.end(), int64_t{0});
    if (rows + more > room || homes_of_round == kMaxHomes) {
      ++round;
      rows = homes_of_round = 0;
    }
    traffic->received_round[static_cast<size_t>(home)] = round;
    rows += more;
    ++homes_of_round;
  }
  std::vector<int64_t> told;
  for (const int64_t of_member : traffic->received_round) told.insert(told.end(), {of_member, round + 1});
  ASSIGN_OR_RETURN(const std::vector<int64_t> heard,
                   pass.parts->exchange().AllToAllCounts(told, std::vector<int64_t>(experts_of.size(), 2)));
  for (size_t member = 0; member < experts_of.size(); ++member) {
    traffic->sent_round[member] = heard[2 * member];
    traffic->rounds = std::max(traffic->rounds, heard[2 * member + 1]);
  }
  return absl::OkStatus();
}

template <typename Serve>
absl::Status ExpertParallel::RunRounds(const Pass& pass, const ExpertTraffic& traffic, const Here& here,
                                       absl::Span<const Array> there, absl::Span<const Array> back,
                                       Serve&& serve) const {
  Exchange& exchange = pass.parts->exchange();
  const size_t size = traffic.sent.size();
  for (int64_t round = 0; round < traffic.rounds; ++round) {
    std::vector<int64_t> sent(size), received(size), starts(size);
    std::vector<int32_t> numbers(static_cast<size_t>(slots(pass)));
    std::iota(numbers.begin(), numbers.end(), 0);
    int64_t rows = 0;
    for (size_t member = 0; member < size; ++member) {
      if (traffic.sent_round[member] == round) sent[member] = traffic.sent[member];
      starts[member] = rows;
      if (traffic.received_round[member] != round) continue;
      const std::vector<int64_t>& of_experts = traffic.received[member];
      received[member] = std::accumulate(of_experts.begin(), of_experts.end(), int64_t{0});
      rows += received[member];
    }
    for (const Array& array : there) {
      RETURN_IF_ERROR(exchange.AllToAllRows({array.sent.data, sent, traffic.places},
                                            {array.here.data, received, starts}, array.row_bytes()));
    }
    std::vector<int> homes;
    for (const int home : pass.parts->homes()) {
      const auto member = static_cast<size_t>(home);
      if (traffic.received_round[member] != round) continue;
      homes.push_back(home);
      numbers.push_back(0);
      for (const int64_t n : traffic.received[member]) numbers.push_back(numbers.back() + static_cast<int32_t>(n));
    }
    RETURN_IF_ERROR(pass.parts->Put(numbers, here.numbers.i32()));
    const int32_t* offsets = Advance(here.numbers.i32(), slots(pass));
    for (const int home : homes) {
      const auto member = static_cast<size_t>(home);
      const auto experts = std::ssize(traffic.received[member]);
      RETURN_IF_ERROR(serve(starts[member], kernels::ExpertRows{.num_experts = experts,
                                                                .chosen = 1,
                                                                .slots = received[member],
                                                                .offsets = offsets,
                                                                .choices = here.numbers.i32(),
                                                                .slot_of = here.numbers.i32()}));
      offsets = Advance(offsets, experts + 1);
    }
    for (const Array& array : back) {
      RETURN_IF_ERROR(exchange.AllToAllRows({array.here.data, received, starts},
                                            {array.sent.data, sent, traffic.places}, array.row_bytes()));
    }
  }
  for (const Array& array : back) array.Reorder(pass, traffic, /*to_send=*/false);
  return absl::OkStatus();
}

void ExpertParallel::ServeForward(const Pass& pass, UnitTensors weights, const Here& here, int64_t first,
                                  const kernels::ExpertRows& rows) const {
  if (rows.slots == 0) return;
  const int64_t step = ExpertStep(weights);
  const kernels::Matrix x = holdfast::Rows(here.x, first, rows.slots), act = holdfast::Rows(here.act, 0, rows.slots);
  const kernels::Matrix gate_up = holdfast::Rows(here.gate_up, 0, rows.slots);
  pass.ops->ExpertGemm({.a = x, .b = weights[0].matrix(), .transpose_b = true, .b_step = step, .c = gate_up}, rows);
  pass.ops->ExpertSwigluForward(act, gate_up, here.weights.f32() + first, rows);
  pass.ops->ExpertGemm({.a = act, .b = weights[1].matrix(), .transpose_b = true, .b_step = step, .c = x}, rows);
}

void ExpertParallel::ServeBackward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Here& here,
                                   int64_t first, const kernels::ExpertRows& rows) const {
  if (rows.num_experts == 0) return;
  const int64_t gradient_step = 3 * width_ * hidden_size_;
  if (rows.slots == 0) {
    return pass.ops->Zero(gradients[0].data, static_cast<size_t>(rows.num_experts * gradient_step) * sizeof(float));
  }
  const int64_t step = ExpertStep(weights);
  const kernels::Matrix x = holdfast::Rows(here.x, first, rows.slots),
                        d_y = holdfast::Rows(here.d_y, first, rows.slots);
  const kernels::Matrix gate_up = holdfast::Rows(here.gate_up, 0, rows.slots);
  const kernels::Matrix act = holdfast::Rows(here.act, 0, rows.slots);
  const float* const routing = here.weights.f32() + first;
  pass.ops->ExpertGemm({.a = x, .b = weights[0].matrix(), .transpose_b = true, .b_step = step, .c = gate_up}, rows);
  pass.ops->ExpertSwigluForward(act, gate_up, routing, rows);
  pass.ops->ExpertGradient({.a = d_y, .b = act, .c = gradients[1].matrix(), .c_step = gradient_step}, rows);
  pass.ops->ExpertGemm({.a = d_y, .b = weights[1].matrix(), .b_step = step, .c = act}, rows);
  pass.ops->ExpertSwigluBackward(gate_up, here.d_weights.f32() + first, act, gate_up, routing, rows);
  pass.ops->ExpertGradient({.a = gate_up, .b = x, .c = gradients[0].matrix(), .c_step = gradient_step}, rows);
  pass.ops->ExpertGemm({.a = gate_up, .b = weights[0].matrix(), .b_step = step, .c = x}, rows);
}

absl::Status ExpertParallel::Forward(const Pass& pass, int unit, const Rows* rows, kernels::Matrix y,
                                     ExpertTraffic* traffic) const {
  RETURN_IF_ERROR(PlanTraffic(pass, unit, rows, traffic));
  ASSIGN_OR_RETURN(const UnitTensors weights, pass.parts->PartWeights(unit));
  const ArenaScope scope(*pass.arena);
  const Here here = Allocate(pass, /*backward=*/false);
  const Tensor by_slot{y.data, pass.dtype, {slots(pass), hidden_size_}}, routing = pass.Floats({slots(pass), 1});
  if (rows != nullptr) {
    pass.ops->GatherRows(y, rows->x, rows->slots);
    pass.ops->GatherRows(routing.matrix(), Column(rows->weights, slots(pass)), OneByOne(rows->slots));
  }
  const Array x = Outgoing(pass, *traffic, by_slot, here.x);
  const Array weight = Outgoing(pass, *traffic, routing, here.weights);
  return RunRounds(pass, *traffic, here, {x, weight}, {x}, [&](int64_t first, const kernels::ExpertRows& of_home) {
    ServeForward(pass, weights, here, first, of_home);
    return absl::OkStatus();
  });
}

absl::Status ExpertParallel::Backward(const Pass& pass, int unit, const Rows* rows, kernels::ConstMatrix d_y,
                                      const ExpertTraffic& traffic, kernels::Matrix d_x, float* d_weights) const {
  ASSIGN_OR_RETURN(const UnitTensors weights, pass.parts->PartWeights(unit));
  const ArenaScope scope(*pass.arena);
  const Here here = Allocate(pass, /*backward=*/true);
  const Tensor x_by_slot{d_x.data, pass.dtype, {slots(pass), hidden_size_}};
  const Tensor d_y_by_slot = pass.arena->Allocate(pass.dtype, x_by_slot.shape);
  const Tensor routing = pass.Floats({slots(pass), 1}), d_routing = pass.Floats({slots(pass), 1});
  if (rows != nullptr) {
    pass.ops->GatherRows(d_x, rows->x, rows->slots);
    pass.ops->GatherRows(d_y_by_slot.matrix(), d_y, rows->slots);
    pass.ops->GatherRows(routing.matrix(), Column(rows->weights, slots(pass)), OneByOne(rows->slots));
  }
  const Array x = Outgoing(pass, traffic, x_by_slot, here.x), gradient = Outgoing(pass, traffic, d_y_by_slot, here.d_y);
  const Array weight = Outgoing(pass, traffic, routing, here.weights);
  const Array d_weight = Outgoing(pass, traffic, d_routing, here.d_weights);
  RETURN_IF_ERROR(RunRounds(pass, traffic, here, {x, gradient, weight}, {x, d_weight},
                            [&](int64_t first, const kernels::ExpertRows& of_home) -> absl::Status {
                              ASSIGN_OR_RETURN(const UnitTensors gradients, pass.parts->BeginPartGradients(unit));
                              ServeBackward(pass, weights, gradients, here, first, of_home);
                              return pass.parts->EndPartGradients(unit);
                            }));
  if (rows == nullptr) return absl::OkStatus();
  // Back to the order of choices, each of which is a row of one value.
  pass.ops->CombineRows({d_weights, DType::kF32, slots(pass), 1, 1}, d_routing.matrix(), {}, OneByOne(rows->slots));
  return absl::OkStatus();
}

}  // namespace holdfast
