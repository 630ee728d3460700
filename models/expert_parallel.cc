#include "models/expert_parallel.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "framework/base/status.h"
#include "framework/nn/part_store.h"

namespace holdfast {
namespace {

/// One value of each choice.
kernels::ExpertRows OneByOne(const kernels::ExpertRows& slots) {
  kernels::ExpertRows rows = slots;
  rows.chosen = 1;
  return rows;
}

kernels::ConstMatrix Column(const float* values, int64_t n) { return {values, DType::kF32, n, 1, 1}; }

int64_t RowBytes(const Tensor& tensor) {
  return tensor.shape.cols() * static_cast<int64_t>(kernels::SizeOf(tensor.dtype));
}

/// Row i of `out` = row numbers[i] of `in`.
void Gather(const Pass& pass, kernels::Matrix out, kernels::ConstMatrix in, const int32_t* numbers) {
  if (out.rows > 0) pass.ops->GatherRows(out, in, {.chosen = 1, .slots = out.rows, .choices = numbers});
}

}  // namespace

int64_t ExpertStep(UnitTensors of_experts) {
  if (of_experts.size() < 4) return 0;
  const auto bytes = static_cast<const char*>(of_experts[2].data) - static_cast<const char*>(of_experts[0].data);
  return bytes / static_cast<int64_t>(kernels::SizeOf(of_experts[0].dtype));
}

struct ExpertParallel::Memory {
  Tensor x, d_y;              // (P, C), of which that of y takes the memory of x, and d_x too; d_y in the backward pass
  Tensor weights, d_weights;  // (P)
  Tensor which;               // (P): see ExpertTraffic
  Tensor rows;                // (R, C) of one home, before they are copied for the experts here
  Tensor gate_up, act;        // (S, 2F) and (S, F), of one home
  Tensor numbers;             // 0 .. S - 1, then for each home of a round the offsets of the experts here
  Tensor to_nodes;            // (S, C): rows that this rank's home sends to other nodes
  Tensor arrived;             // (R, C): rows of another node's home, to be handed on
  Tensor handed_on, list;     // (S, C) and (S): what is, and which of `arrived` or of the own rows it is
  Tensor home;                // (3S): ExpertTraffic::which, handed_on and rows of all nodes, one after the other
};

struct ExpertParallel::Array {
  Tensor by_slot, sent, here;
  void Reorder(const Pass& pass, const ExpertTraffic& traffic, bool to_send) const {
    for (const ExpertTraffic::Range& range : traffic.order) {
      void* const slots = holdfast::Rows(by_slot, range.slot, range.count).data;
      void* const places = holdfast::Rows(sent, range.place, range.count).data;
      pass.ops->Copy(to_send ? places : slots, to_send ? slots : places,
                     static_cast<size_t>(range.count * RowBytes(sent)));
    }
  }
};

struct ExpertParallel::Vector {
  kernels::ConstMatrix rows;  // (R, C), of a home
  Tensor here;                // (P, C)
};

struct ExpertParallel::Round {
  int64_t number = 0;
  std::vector<int64_t> sent, received, starts;  // choices by member, and where those that are received begin
  std::vector<int> homes;                       // whose rows are served here
};

ExpertParallel::Memory ExpertParallel::Allocate(const Pass& pass, bool backward) const {
  const int64_t room = kExpertRoom * slots(pass);
  const auto rows = [&](int64_t count) { return pass.arena->Allocate(pass.dtype, {count, hidden_size_}); };
  return {.x = rows(room),
          .d_y = backward ? rows(room) : Tensor(),
          .weights = pass.Floats({room, 1}),
          .d_weights = backward ? pass.Floats({room, 1}) : Tensor(),
          .which = pass.Floats({room, 1}),
          .rows = rows(pass.rows()),
          .gate_up = pass.arena->Allocate(pass.dtype, {slots(pass), 2 * width_}),
          .act = pass.arena->Allocate(pass.dtype, {slots(pass), width_}),
          .numbers = pass.Floats({slots(pass) + kMaxHomesOfRound * (num_experts_ + 1)}),
          .to_nodes = rows(slots(pass)),
          .arrived = rows(pass.rows()),
          .handed_on = rows(slots(pass)),
          .list = pass.Floats({slots(pass), 1}),
          .home = pass.Floats({3 * slots(pass), 1})};
}

absl::Status ExpertParallel::PutNumbers(const Pass& pass, const ExpertTraffic& traffic, const Memory& memory) const {
  std::vector<int32_t> numbers(static_cast<size_t>(3 * slots(pass)));
  std::copy(traffic.which.begin(), traffic.which.end(), numbers.begin());
  auto handed_on = numbers.begin() + slots(pass), rows = handed_on + slots(pass);
  for (const ExpertTraffic::ToNode& to_node : traffic.to_nodes) {
    handed_on = std::copy(to_node.handed_on.begin(), to_node.handed_on.end(), handed_on);
    rows = std::copy(to_node.rows.begin(), to_node.rows.end(), rows);
  }
  return pass.parts->Put(numbers, memory.home.i32());
}

// Where ranks' experts do not ascend with the ranks, values travel in another order than that of slots.
ExpertParallel::Array ExpertParallel::Returning(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot,
                                                const Tensor& here) const {
  const Tensor sent = pass.arena->Allocate(by_slot.dtype, by_slot.shape);
  return {by_slot, traffic.order.empty() ? by_slot : sent, here};
}

ExpertParallel::Array ExpertParallel::Outgoing(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot,
                                               const Tensor& here) const {
  const Array array = Returning(pass, traffic, by_slot, here);
  array.Reorder(pass, traffic, /*to_send=*/true);
  return array;
}

// Of one turn: rows, and what is to be handed on of them, go from homes to their relays on other nodes.
absl::Status ExpertParallel::CrossNodes(const Pass& pass, const ExpertTraffic& traffic, const Round& round, int turn,
                                        const Memory& memory) const {
  Exchange& exchange = pass.parts->exchange();
  const ExpertRoutes& routes = traffic.routes;
  const int self = exchange.rank();
  const size_t size = traffic.sent.size();
  std::vector<int64_t> rows(size), rows_at(size), list(size), list_at(size);
  int64_t row = 0, number = slots(pass);
  for (int node = 0; node < routes.num_nodes(); ++node) {
    const ExpertTraffic::ToNode& to_node = traffic.to_nodes[static_cast<size_t>(node)];
    const int relay = routes.RelayOf(self, node);
    const auto at = static_cast<size_t>(relay);
    if (relay != self && routes.HomeOf(relay, turn) == self && traffic.sent_round[at] == round.number) {
      rows[at] = std::ssize(to_node.rows);
      rows_at[at] = row;
      list[at] = std::ssize(to_node.handed_on);
      list_at[at] = number;
    }
    row += std::ssize(to_node.rows);
    number += std::ssize(to_node.handed_on);
  }
  std::vector<int64_t> rows_here(size), list_here(size);
  const std::vector<int64_t> at_start(size);
  const int home = routes.HomeOf(self, turn);
  if (home >= 0 && home != self) {
    const ExpertTraffic::Home& of_home = traffic.received[static_cast<size_t>(home)];
    if (of_home.round == round.number) {
      rows_here[static_cast<size_t>(home)] = of_home.rows_to_node;
      list_here[static_cast<size_t>(home)] =
          std::accumulate(of_home.rows_of.begin(), of_home.rows_of.end(), int64_t{0});
    }
  }
  RETURN_IF_ERROR(exchange.AllToAllRows({memory.home.data, list, list_at}, {memory.list.data, list_here, at_start},
                                        sizeof(int32_t)));
  return exchange.AllToAllRows({memory.to_nodes.data, rows, rows_at}, {memory.arrived.data, rows_here, at_start},
                               RowBytes(memory.arrived));
}

// Brings the rows of a round to those who serve their experts. A home's lie where those of its choices will.
absl::Status ExpertParallel::Spread(const Pass& pass, const ExpertTraffic& traffic, const Round& round,
                                    const Memory& memory, const Vector& vector) const {
  Exchange& exchange = pass.parts->exchange();
  const ExpertRoutes& routes = traffic.routes;
  const int self = exchange.rank(), own_node = routes.NodeOf(self);
  const absl::Span<const int> members = routes.Members(own_node);
  const size_t size = traffic.sent.size();
  int64_t own_list = slots(pass), travel = 0;  // where, in memory.home, the list of what goes to the own node begins
  for (int node = 0; node < routes.num_nodes(); ++node) {
    const ExpertTraffic::ToNode& to_node = traffic.to_nodes[static_cast<size_t>(node)];
    if (node < own_node) own_list += std::ssize(to_node.handed_on);
    travel += std::ssize(to_node.rows);
  }
  Gather(pass, holdfast::Rows(memory.to_nodes, 0, travel), vector.rows, Advance(memory.home.i32(), 2 * slots(pass)));
  for (int turn = 0; turn < routes.num_turns(); ++turn) {
    if (routes.Crosses(turn)) RETURN_IF_ERROR(CrossNodes(pass, traffic, round, turn, memory));
    std::vector<int64_t> to(size), to_at(size), from(size), from_at(size);
    const int home = routes.HomeOf(self, turn);
    int64_t handed_on = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto member = static_cast<size_t>(members[i]);
      to_at[member] = handed_on;
      if (home >= 0 && traffic.received[static_cast<size_t>(home)].round == round.number) {
        to[member] = traffic.received[static_cast<size_t>(home)].rows_of[i];
        handed_on += to[member];
      }
      const int other = routes.HomeOf(members[i], turn);
      if (other < 0) continue;
      const ExpertTraffic::Home& from_other = traffic.received[static_cast<size_t>(other)];
      if (from_other.round == round.number) from[member] = from_other.rows;
      from_at[member] = round.starts[static_cast<size_t>(other)];
    }
    const kernels::Matrix out = holdfast::Rows(memory.handed_on, 0, handed_on);
    if (home == self) {
      Gather(pass, out, vector.rows, Advance(memory.home.i32(), own_list));
    } else {
      Gather(pass, out, memory.arrived.matrix(), memory.list.i32());
    }
    RETURN_IF_ERROR(exchange.AllToAllRows({memory.handed_on.data, to, to_at}, {vector.here.data, from, from_at},
                                          RowBytes(vector.here)));
  }
  return absl::OkStatus();
}

ExpertParallel::Round ExpertParallel::RoundOf(const ExpertTraffic& traffic, absl::Span<const int> homes,
                                              int64_t number) {
  const size_t size = traffic.sent.size();
  Round round{number, std::vector<int64_t>(size), std::vector<int64_t>(size), std::vector<int64_t>(size), {}};
  int64_t rows = 0;
  for (size_t member = 0; member < size; ++member) {
    if (traffic.sent_round[member] == number) round.sent[member] = traffic.sent[member];
    round.starts[member] = rows;
    if (traffic.received[member].round == number) rows += round.received[member] = traffic.received[member].num_choices;
  }
  for (const int home : homes) {
    if (traffic.received[static_cast<size_t>(home)].round == number) round.homes.push_back(home);
  }
  return round;
}

// From a row for this rank to one for each of its choices here.
void ExpertParallel::CopyForExperts(const Pass& pass, const ExpertTraffic::Home& home, int64_t first,
                                    const Memory& memory, const Vector& vector) const {
  if (home.rows == home.num_choices) return;  // each has one expert here: they are in order
  pass.ops->Copy(memory.rows.data, holdfast::Rows(vector.here, first, home.rows).data,
                 static_cast<size_t>(home.rows * RowBytes(vector.here)));
  Gather(pass, holdfast::Rows(vector.here, first, home.num_choices), memory.rows.matrix(),
         Advance(memory.which.i32(), first));
}

template <typename Serve>
absl::Status ExpertParallel::RunRounds(const Pass& pass, const ExpertTraffic& traffic, const Memory& memory,
                                       absl::Span<const Vector> vectors, const Array& weights,
                                       absl::Span<const Array> back, Serve&& serve) const {
  Exchange& exchange = pass.parts->exchange();
  RETURN_IF_ERROR(PutNumbers(pass, traffic, memory));
  for (int64_t number = 0; number < traffic.rounds; ++number) {
    const Round round = RoundOf(traffic, pass.parts->homes(), number);
    const auto send = [&](const void* from, void* to, int64_t row_bytes) {
      return exchange.AllToAllRows({from, round.sent, traffic.places}, {to, round.received, round.starts}, row_bytes);
    };
    RETURN_IF_ERROR(send(memory.home.data, memory.which.data, sizeof(int32_t)));
    RETURN_IF_ERROR(send(weights.sent.data, weights.here.data, RowBytes(weights.here)));
    for (const Vector& vector : vectors) RETURN_IF_ERROR(Spread(pass, traffic, round, memory, vector));

    std::vector<int32_t> numbers(static_cast<size_t>(slots(pass)));
    std::iota(numbers.begin(), numbers.end(), 0);
    for (const int home : round.homes) {
      numbers.push_back(0);
      for (const int64_t n : traffic.received[static_cast<size_t>(home)].choices) {
        numbers.push_back(numbers.back() + static_cast<int32_t>(n));
      }
    }
    RETURN_IF_ERROR(pass.parts->Put(numbers, memory.numbers.i32()));
    const int32_t* offsets = Advance(memory.numbers.i32(), slots(pass));
    for (const int home : round.homes) {
      const ExpertTraffic::Home& from = traffic.received[static_cast<size_t>(home)];
      const int64_t first = round.starts[static_cast<size_t>(home)];
      for (const Vector& vector : vectors) CopyForExperts(pass, from, first, memory, vector);
      const auto experts = std::ssize(from.choices);
      RETURN_IF_ERROR(serve(first, kernels::ExpertRows{.num_experts = experts,
                                                       .chosen = 1,
                                                       .slots = from.num_choices,
                                                       .offsets = offsets,
                                                       .choices = memory.numbers.i32(),
                                                       .slot_of = memory.numbers.i32()}));
      offsets = Advance(offsets, experts + 1);
    }
    for (const Array& array : back) {
      RETURN_IF_ERROR(exchange.AllToAllRows({array.here.data, round.received, round.starts},
                                            {array.sent.data, round.sent, traffic.places}, RowBytes(array.here)));
    }
  }
  for (const Array& array : back) array.Reorder(pass, traffic, /*to_send=*/false);
  return absl::OkStatus();
}

void ExpertParallel::ServeForward(const Pass& pass, UnitTensors weights, const Memory& memory, int64_t first,
                                  const kernels::ExpertRows& rows) const {
  if (rows.slots == 0) return;
  const int64_t step = ExpertStep(weights);
  const kernels::Matrix x = holdfast::Rows(memory.x, first, rows.slots),
                        act = holdfast::Rows(memory.act, 0, rows.slots);
  const kernels::Matrix gate_up = holdfast::Rows(memory.gate_up, 0, rows.slots);
  pass.ops->ExpertGemm({.a = x, .b = weights[0].matrix(), .transpose_b = true, .b_step = step, .c = gate_up}, rows);
  pass.ops->ExpertSwigluForward(act, gate_up, memory.weights.f32() + first, rows);
  pass.ops->ExpertGemm({.a = act, .b = weights[1].matrix(), .transpose_b = true, .b_step = step, .c = x}, rows);
}

void ExpertParallel::ServeBackward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Memory& memory,
                                   int64_t first, const kernels::ExpertRows& rows) const {
  if (rows.num_experts == 0) return;
  const int64_t gradient_step = 3 * width_ * hidden_size_;
  if (rows.slots == 0) {
    return pass.ops->Zero(gradients[0].data, static_cast<size_t>(rows.num_experts * gradient_step) * sizeof(float));
  }
  const int64_t step = ExpertStep(weights);
  const kernels::Matrix x = holdfast::Rows(memory.x, first, rows.slots),
                        d_y = holdfast::Rows(memory.d_y, first, rows.slots);
  const kernels::Matrix gate_up = holdfast::Rows(memory.gate_up, 0, rows.slots);
  const kernels::Matrix act = holdfast::Rows(memory.act, 0, rows.slots);
  const float* const routing = memory.weights.f32() + first;
  pass.ops->ExpertGemm({.a = x, .b = weights[0].matrix(), .transpose_b = true, .b_step = step, .c = gate_up}, rows);
  pass.ops->ExpertSwigluForward(act, gate_up, routing, rows);
  pass.ops->ExpertGradient({.a = d_y, .b = act, .c = gradients[1].matrix(), .c_step = gradient_step}, rows);
  pass.ops->ExpertGemm({.a = d_y, .b = weights[1].matrix(), .b_step = step, .c = act}, rows);
  pass.ops->ExpertSwigluBackward(gate_up, memory.d_weights.f32() + first, act, gate_up, routing, rows);
  pass.ops->ExpertGradient({.a = gate_up, .b = x, .c = gradients[0].matrix(), .c_step = gradient_step}, rows);
  pass.ops->ExpertGemm({.a = gate_up, .b = weights[0].matrix(), .b_step = step, .c = x}, rows);
}

absl::Status ExpertParallel::Forward(const Pass& pass, int unit, const Rows* rows, kernels::Matrix y,
                                     ExpertTraffic* traffic) const {
  ASSIGN_OR_RETURN(
      *traffic, PlanExpertTraffic(*pass.parts, unit, rows == nullptr ? nullptr : &rows->slots, pass.rows(), chosen_));
  ASSIGN_OR_RETURN(const UnitTensors weights, pass.parts->PartWeights(unit));
  const ArenaScope scope(*pass.arena);
  const Memory memory = Allocate(pass, /*backward=*/false);
  const Tensor by_slot{y.data, pass.dtype, {slots(pass), hidden_size_}}, routing = pass.Floats({slots(pass), 1});
  Vector x{{}, memory.x};
  if (rows != nullptr) {
    x.rows = rows->x;
    pass.ops->GatherRows(routing.matrix(), Column(rows->weights, slots(pass)), OneByOne(rows->slots));
  }
  const Array weight = Outgoing(pass, *traffic, routing, memory.weights);
  const Array y_back = Returning(pass, *traffic, by_slot, memory.x);
  return RunRounds(pass, *traffic, memory, {x}, weight, {y_back},
                   [&](int64_t first, const kernels::ExpertRows& of_home) {
                     ServeForward(pass, weights, memory, first, of_home);
                     return absl::OkStatus();
                   });
}

absl::Status ExpertParallel::Backward(const Pass& pass, int unit, const Rows* rows, kernels::ConstMatrix d_y,
                                      const ExpertTraffic& traffic, kernels::Matrix d_x, float* d_weights) const {
  ASSIGN_OR_RETURN(const UnitTensors weights, pass.parts->PartWeights(unit));
  const ArenaScope scope(*pass.arena);
  const Memory memory = Allocate(pass, /*backward=*/true);
  const Tensor d_x_by_slot{d_x.data, pass.dtype, {slots(pass), hidden_size_}};
  const Tensor routing = pass.Floats({slots(pass), 1}), d_routing = pass.Floats({slots(pass), 1});
  Vector x{{}, memory.x}, gradient{{}, memory.d_y};
  if (rows != nullptr) {
    x.rows = rows->x;
    gradient.rows = d_y;
    pass.ops->GatherRows(routing.matrix(), Column(rows->weights, slots(pass)), OneByOne(rows->slots));
  }
  const Array weight = Outgoing(pass, traffic, routing, memory.weights);
  const Array d_x_back = Returning(pass, traffic, d_x_by_slot, memory.x);
  const Array d_weight = Returning(pass, traffic, d_routing, memory.d_weights);
  RETURN_IF_ERROR(RunRounds(pass, traffic, memory, {x, gradient}, weight, {d_x_back, d_weight},
                            [&](int64_t first, const kernels::ExpertRows& of_home) -> absl::Status {
                              ASSIGN_OR_RETURN(const UnitTensors gradients, pass.parts->BeginPartGradients(unit));
                              ServeBackward(pass, weights, gradients, memory, first, of_home);
                              return pass.parts->EndPartGradients(unit);
                            }));
  if (rows == nullptr) return absl::OkStatus();
  // Back to the order of choices, each of which is a row of one value.
  pass.ops->CombineRows({d_weights, DType::kF32, slots(pass), 1, 1}, d_routing.matrix(), {}, OneByOne(rows->slots));
  return absl::OkStatus();
}

}  // namespace holdfast
