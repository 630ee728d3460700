#include "models/expert_parallel.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

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
void Gather(kernels::Ops& ops, kernels::Matrix out, kernels::ConstMatrix in, const int32_t* numbers) {
  if (out.rows > 0) ops.GatherRows(out, in, {.chosen = 1, .slots = out.rows, .choices = numbers});
}

}  // namespace

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

struct ExpertParallel::Call {
  const Pass& pass;
  const ExpertTraffic& traffic;
  const Memory& memory;
  absl::Span<const Vector> vectors;
  const Array& weights;
  absl::Span<const Array> back;

  Exchange& exchange() const { return pass.parts->exchange(); }
  int self() const { return exchange().rank(); }
  int own_node() const { return traffic.routes.NodeOf(self()); }
  const ExpertTraffic::Home& HomeAt(int home) const { return traffic.received[static_cast<size_t>(home)]; }
};

ExpertParallel::Round ExpertParallel::RoundOf(const ExpertTraffic& traffic, int64_t number) {
  const size_t size = traffic.sent.size();
  Round round{number, std::vector<int64_t>(size), std::vector<int64_t>(size), std::vector<int64_t>(size)};
  int64_t rows = 0;
  for (size_t member = 0; member < size; ++member) {
    if (traffic.sent_round[member] == number) round.sent[member] = traffic.sent[member];
    round.starts[member] = rows;
    if (traffic.received[member].round == number) rows += round.received[member] = traffic.received[member].num_choices;
  }
  return round;
}

// To those who serve the experts of a row: its weight for each, and which of the rows that they get it is.
absl::Status ExpertParallel::SendChoices(const Call& call, const Round& round) const {
  const auto send = [&](const void* from, void* to, int64_t row_bytes) {
    return call.exchange().AllToAllRows({from, round.sent, call.traffic.places}, {to, round.received, round.starts},
                                        row_bytes);
  };
  RETURN_IF_ERROR(send(call.memory.home.data, call.memory.which.data, sizeof(int32_t)));
  return send(call.weights.sent.data, call.weights.here.data, RowBytes(call.weights.here));
}

// Of one turn: rows, and what is to be handed on of them, go from homes to their relays on other nodes, which hand them
// on. The list of what is goes once for all vectors; it is not kept for the backward pass, because how long the lists
// of all homes are together depends on the routers.
absl::Status ExpertParallel::SendRows(const Call& call, const Round& round, int turn, kernels::Ops& ops) const {
  const ExpertRoutes& routes = call.traffic.routes;
  const Memory& memory = call.memory;
  const int self = call.self();
  const size_t size = call.traffic.sent.size();
  if (!routes.Crosses(turn)) {
    for (const Vector& vector : call.vectors) RETURN_IF_ERROR(HandOn(call, round, turn, vector, ops));
    return absl::OkStatus();
  }
  std::vector<int64_t> rows(size), rows_at(size), list(size), list_at(size);
  std::vector<std::pair<int64_t, int64_t>> leaving;  // rows of to_nodes: place, number
  int64_t row = 0, number = slots(call.pass);
  for (int node = 0; node < routes.num_nodes(); ++node) {
    const ExpertTraffic::ToNode& to_node = call.traffic.to_nodes[static_cast<size_t>(node)];
    const int relay = routes.RelayOf(self, node);
    const auto at = static_cast<size_t>(relay);
    if (relay != self && routes.TurnOf(self, node) == turn && call.traffic.sent_round[at] == round.number) {
      rows[at] = std::ssize(to_node.rows);
      rows_at[at] = row;
      list[at] = std::ssize(to_node.handed_on);
      list_at[at] = number;
      leaving.emplace_back(row, rows[at]);
    }
    row += std::ssize(to_node.rows);
    number += std::ssize(to_node.handed_on);
  }
  std::vector<int64_t> rows_here(size), list_here(size);
  const std::vector<int64_t> at_start(size);
  const int home = routes.HomeOf(self, turn);
  if (home >= 0 && home != self && call.HomeAt(home).round == round.number) {
    const std::vector<int64_t>& handed_on = call.HomeAt(home).rows_of;
    rows_here[static_cast<size_t>(home)] = call.HomeAt(home).rows_to_node;
    list_here[static_cast<size_t>(home)] = std::accumulate(handed_on.begin(), handed_on.end(), int64_t{0});
  }
  RETURN_IF_ERROR(call.exchange().AllToAllRows({memory.home.data, list, list_at},
                                               {memory.list.data, list_here, at_start}, sizeof(int32_t)));
  for (const Vector& vector : call.vectors) {
    for (const auto& [first, count] : leaving) {
      Gather(ops, holdfast::Rows(memory.to_nodes, first, count), vector.rows,
             Advance(memory.home.i32(), 2 * slots(call.pass) + first));
    }
    RETURN_IF_ERROR(call.exchange().AllToAllRows({memory.to_nodes.data, rows, rows_at},
                                                 {memory.arrived.data, rows_here, at_start}, RowBytes(memory.arrived)));
    RETURN_IF_ERROR(HandOn(call, round, turn, vector, ops));
  }
  return absl::OkStatus();
}

// To those of this node who serve their experts: rows of the home that this rank hands on in this turn. A home's lie
// where those of its choices will.
absl::Status ExpertParallel::HandOn(const Call& call, const Round& round, int turn, const Vector& vector,
                                    kernels::Ops& ops) const {
  const ExpertRoutes& routes = call.traffic.routes;
  const Memory& memory = call.memory;
  const absl::Span<const int> members = routes.Members(call.own_node());
  const size_t size = call.traffic.sent.size();
  std::vector<int64_t> to(size), to_at(size), from(size), from_at(size);
  const int home = routes.HomeOf(call.self(), turn);
  int64_t handed_on = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto member = static_cast<size_t>(members[i]);
    to_at[member] = handed_on;
    if (home >= 0 && call.HomeAt(home).round == round.number) handed_on += to[member] = call.HomeAt(home).rows_of[i];
    const int other = routes.HomeOf(members[i], turn);
    if (other < 0) continue;
    if (call.HomeAt(other).round == round.number) from[member] = call.HomeAt(other).rows;
    from_at[member] = round.starts[static_cast<size_t>(other)];
  }
  const kernels::Matrix out = holdfast::Rows(memory.handed_on, 0, handed_on);
  if (home == call.self()) {
    int64_t list = slots(call.pass);  // where, in memory.home, that of what goes to the own node begins
    for (int node = 0; node < call.own_node(); ++node) {
      list += std::ssize(call.traffic.to_nodes[static_cast<size_t>(node)].handed_on);
    }
    Gather(ops, out, vector.rows, Advance(memory.home.i32(), list));
  } else {
    Gather(ops, out, memory.arrived.matrix(), memory.list.i32());
  }
  return call.exchange().AllToAllRows({memory.handed_on.data, to, to_at}, {vector.here.data, from, from_at},
                                      RowBytes(vector.here));
}

// What was made here of the rows of a turn's homes, and elsewhere of this rank's own.
absl::Status ExpertParallel::ReturnResults(const Call& call, const Round& round, int turn) const {
  const ExpertRoutes& routes = call.traffic.routes;
  std::vector<int64_t> made = round.received, own = round.sent;
  for (int member = 0; member < call.exchange().size(); ++member) {
    const auto at = static_cast<size_t>(member);
    if (routes.TurnOf(member, call.own_node()) != turn) made[at] = 0;
    if (routes.TurnOf(call.self(), routes.NodeOf(member)) != turn) own[at] = 0;
  }
  for (const Array& array : call.back) {
    RETURN_IF_ERROR(call.exchange().AllToAllRows({array.here.data, made, round.starts},
                                                 {array.sent.data, own, call.traffic.places}, RowBytes(array.here)));
  }
  return absl::OkStatus();
}

// From a row for this rank to one for each of its choices here.
void ExpertParallel::CopyForExperts(const Pass& pass, const ExpertTraffic::Home& home, int64_t first,
                                    const Memory& memory, const Vector& vector) const {
  if (home.rows == home.num_choices) return;  // each has one expert here: they are in order
  pass.ops->Copy(memory.rows.data, holdfast::Rows(vector.here, first, home.rows).data,
                 static_cast<size_t>(home.rows * RowBytes(vector.here)));
  Gather(*pass.ops, holdfast::Rows(vector.here, first, home.num_choices), memory.rows.matrix(),
         Advance(memory.which.i32(), first));
}

absl::Status ExpertParallel::PutOffsets(const Call& call, const Round& round) const {
  std::vector<int32_t> numbers(static_cast<size_t>(slots(call.pass)));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const int home : call.pass.parts->homes()) {
    if (call.HomeAt(home).round != round.number) continue;
    numbers.push_back(0);
    for (const int64_t n : call.HomeAt(home).choices) numbers.push_back(numbers.back() + static_cast<int32_t>(n));
  }
  return call.pass.parts->Put(numbers, call.memory.numbers.i32());
}

absl::Status ExpertParallel::ServeHome(const Call& call, const Round& round, int home, int64_t number,
                                       const Serve& serve) const {
  const ExpertTraffic::Home& from = call.HomeAt(home);
  const int64_t first = round.starts[static_cast<size_t>(home)];
  for (const Vector& vector : call.vectors) CopyForExperts(call.pass, from, first, call.memory, vector);
  const int32_t* const numbers = call.memory.numbers.i32();
  const auto experts = std::ssize(from.choices);
  return serve(home, first,
               {.num_experts = experts,
                .chosen = 1,
                .slots = from.num_choices,
                .offsets = Advance(numbers, slots(call.pass) + number * (experts + 1)),
                .choices = numbers,
                .slot_of = numbers});
}

absl::Status ExpertParallel::RunRound(const Call& call, const Round& round, const Serve& serve,
                                      const Beside& beside) const {
  Exchange& exchange = call.exchange();
  const ExpertRoutes& routes = call.traffic.routes;
  RETURN_IF_ERROR(PutOffsets(call, round));
  std::vector<int64_t> begun;
  for (int turn = 0; turn < routes.num_turns(); ++turn) {
    begun.push_back(exchange.Begin([this, &call, &round, turn](kernels::Ops& ops) -> absl::Status {
      if (turn == 0) RETURN_IF_ERROR(SendChoices(call, round));
      return SendRows(call, round, turn, ops);
    }));
  }
  if (beside.there != nullptr) beside.there();
  // How many more rounds there are depends on the data, and differs between groups.
  const bool pauses = round.number == 0;
  if (pauses) RETURN_IF_ERROR(call.pass.parts->Pause());
  int64_t last = begun.back();
  for (int turn = 0; turn < routes.num_turns(); ++turn) {
    RETURN_IF_ERROR(exchange.Wait(begun[static_cast<size_t>(turn)]));
    int64_t number = 0;  // of a home among those of the round
    for (const int home : call.pass.parts->homes()) {
      if (call.HomeAt(home).round != round.number) continue;
      if (routes.TurnOf(home, call.own_node()) == turn) RETURN_IF_ERROR(ServeHome(call, round, home, number, serve));
      ++number;
    }
    last = exchange.Begin([this, &call, &round, turn](kernels::Ops&) { return ReturnResults(call, round, turn); });
  }
  if (beside.back != nullptr) beside.back();
  if (pauses) RETURN_IF_ERROR(call.pass.parts->Pause());
  return exchange.Wait(last);
}

absl::Status ExpertParallel::RunRounds(const Call& call, const Serve& serve, const Beside& beside) const {
  RETURN_IF_ERROR(PutNumbers(call.pass, call.traffic, call.memory));
  for (int64_t number = 0; number < call.traffic.rounds; ++number) {
    const Round round = RoundOf(call.traffic, number);
    const absl::Status status =
        RunRound(call, round, serve,
                 {.there = number == 0 ? beside.there : nullptr, .back = number == 0 ? beside.back : nullptr});
    if (!status.ok()) call.exchange().Abandon();  // before its memory is anybody else's
    RETURN_IF_ERROR(status);
  }
  for (const Array& array : call.back) array.Reorder(call.pass, call.traffic, /*to_send=*/false);
  return absl::OkStatus();
}

ExpertSlots ExpertParallel::SlotsOf(const Memory& memory, int64_t first, const kernels::ExpertRows& rows) const {
  return {.rows = rows,
          .weights = memory.weights.f32() + first,
          .gate_up = holdfast::Rows(memory.gate_up, 0, rows.slots),
          .act = holdfast::Rows(memory.act, 0, rows.slots)};
}

void ExpertParallel::ServeForward(const Pass& pass, UnitTensors weights, const Memory& memory, int64_t first,
                                  const kernels::ExpertRows& rows) const {
  if (rows.slots == 0) return;
  const kernels::Matrix x = holdfast::Rows(memory.x, first, rows.slots);
  const ExpertSlots here = SlotsOf(memory, first, rows);
  mlp_.Up(pass, weights, x, here);
  mlp_.Down(pass, weights, here, x);
}

void ExpertParallel::ServeBackward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Memory& memory,
                                   int64_t first, const kernels::ExpertRows& rows) const {
  if (rows.num_experts == 0) return;
  if (rows.slots == 0) {
    const int64_t elements =
        std::accumulate(gradients.begin(), gradients.end(), int64_t{0},
                        [](int64_t sum, const Tensor& gradient) { return sum + gradient.shape.elements(); });
    return pass.ops->Zero(gradients[0].data, static_cast<size_t>(elements) * sizeof(float));
  }
  const kernels::Matrix x = holdfast::Rows(memory.x, first, rows.slots);
  const ExpertSlots here = SlotsOf(memory, first, rows);
  mlp_.Up(pass, weights, x, here);
  mlp_.BackwardDown(pass, weights, gradients, here, holdfast::Rows(memory.d_y, first, rows.slots),
                    memory.d_weights.f32() + first);
  mlp_.BackwardUp(pass, weights, gradients, here, x);
}

absl::Status ExpertParallel::Forward(const Pass& pass, int unit, const Rows* rows, kernels::Matrix y,
                                     ExpertTraffic* traffic, const Beside& beside) const {
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
  const auto serve = [&](int /*home*/, int64_t first, const kernels::ExpertRows& of_home) {
    ServeForward(pass, weights, memory, first, of_home);
    return absl::OkStatus();
  };
  return RunRounds({pass, *traffic, memory, absl::MakeConstSpan(&x, 1), weight, absl::MakeConstSpan(&y_back, 1)}, serve,
                   beside);
}

absl::Status ExpertParallel::Backward(const Pass& pass, int unit, const Rows* rows, kernels::ConstMatrix d_y,
                                      const ExpertTraffic& traffic, kernels::Matrix d_x, float* d_weights,
                                      const Beside& beside) const {
  ASSIGN_OR_RETURN(const UnitTensors weights, pass.parts->PartWeights(unit));
  const ArenaScope scope(*pass.arena);
  const Memory memory = Allocate(pass, /*backward=*/true);
  const Tensor d_x_by_slot{d_x.data, pass.dtype, {slots(pass), hidden_size_}};
  const Tensor routing = pass.Floats({slots(pass), 1}), d_routing = pass.Floats({slots(pass), 1});
  std::array<Vector, 2> vectors{Vector{{}, memory.x}, Vector{{}, memory.d_y}};
  if (rows != nullptr) {
    vectors[0].rows = rows->x;
    vectors[1].rows = d_y;
    pass.ops->GatherRows(routing.matrix(), Column(rows->weights, slots(pass)), OneByOne(rows->slots));
  }
  const Array weight = Outgoing(pass, traffic, routing, memory.weights);
  const std::array<Array, 2> back{Returning(pass, traffic, d_x_by_slot, memory.x),
                                  Returning(pass, traffic, d_routing, memory.d_weights)};
  const auto serve = [&](int home, int64_t first, const kernels::ExpertRows& of_home) -> absl::Status {
    ASSIGN_OR_RETURN(const UnitTensors gradients, pass.parts->BeginPartGradients(unit, home));
    ServeBackward(pass, weights, gradients, memory, first, of_home);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRounds({pass, traffic, memory, vectors, weight, back}, serve, beside));
  RETURN_IF_ERROR(
      pass.parts->EndPartGradients(unit));  // at the same point of every pass, however many rounds there are
  if (rows == nullptr) return absl::OkStatus();
  // Back to the order of choices, each of which is a row of one value.
  pass.ops->CombineRows({d_weights, DType::kF32, slots(pass), 1, 1}, d_routing.matrix(), {}, OneByOne(rows->slots));
  return absl::OkStatus();
}

}  // namespace holdfast
