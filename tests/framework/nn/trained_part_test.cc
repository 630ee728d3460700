// Proves that what is trained of a model is a layout of its own, with numbers and offsets that lead back to the
// model's.

#include "framework/nn/trained_part.h"

#include <gtest/gtest.h>

#include <numeric>

namespace holdfast {
namespace {

ParameterSpec Of(const char* name, int unit, int64_t rows, bool frozen, int part = -1) {
  ParameterSpec spec{.name = name, .shape = {rows, 3}};
  spec.unit = unit;
  spec.part = part;
  spec.frozen = frozen;
  return spec;
}

/// Units: all frozen, some, cut at parts of which each is trained in part, all trained.
ParameterLayout Model() {
  return ParameterLayout({Of("a", 0, 2, true), Of("b.0", 1, 4, true), Of("b.1", 1, 5, false), Of("b.2", 1, 1, true),
                          Of("c.0.x", 2, 2, true, 0), Of("c.0.y", 2, 3, false, 0), Of("c.1.x", 2, 2, true, 1),
                          Of("c.1.y", 2, 3, false, 1), Of("d", 3, 7, false)},
                         {"a", "b", "c", "d"});
}

TEST(TrainedPart, IsALayoutOfItsOwn) {
  const ParameterLayout model = Model();
  const TrainedPart part(model);
  EXPECT_FALSE(part.is_all());
  const ParameterLayout& layout = part.layout();
  ASSERT_EQ(layout.num_units(), 3);
  EXPECT_EQ(layout.units()[0].name, "b");
  EXPECT_EQ(layout.units()[1].parts.size(), 2u);
  EXPECT_EQ(layout.elements(), 3 * (5 + 3 + 3 + 7));
  EXPECT_EQ(part.UnitOf(0), -1);
  EXPECT_EQ(part.UnitOf(1), 0);
  EXPECT_EQ(part.UnitOf(3), 2);
  for (int p = 0; p < static_cast<int>(model.parameters().size()); ++p) {
    const ParameterSpec& spec = model.parameters()[static_cast<size_t>(p)];
    const int trained = part.ParameterOf(p);
    EXPECT_EQ(trained < 0, spec.frozen) << spec.name;
    if (trained < 0) continue;
    const ParameterSpec& same = layout.parameters()[static_cast<size_t>(trained)];
    EXPECT_EQ(same.name, spec.name);
    for (int64_t i = 0; i < spec.shape.elements(); ++i) {
      EXPECT_EQ(part.OffsetInModel(same.offset + i), spec.offset + i);
      EXPECT_EQ(ParameterAt(model, spec.offset + i), p);
    }
  }
}

TEST(TrainedPart, OfAllIsTheModel) {
  const ParameterLayout model({Of("a", 0, 2, false), Of("b", 1, 4, false)}, {"a", "b"});
  const TrainedPart part(model);
  EXPECT_TRUE(part.is_all());
  EXPECT_EQ(part.layout().elements(), model.elements());
}

TEST(TrainedPart, LeavesOutCallsForFrozenUnits) {
  const ParameterLayout model = Model();
  using Kind = StoreCall::Kind;
  const UnitSchedule schedule = {
      {Kind::kAcquire, 0}, {Kind::kAcquire, 1}, {Kind::kRelease, 0}, {Kind::kBeginGradients, 3}};
  const UnitSchedule expected = {{Kind::kAcquire, 0}, {Kind::kBeginGradients, 2}};
  EXPECT_EQ(TrainedPart(model).Of(schedule), expected);
}

TEST(TrainedPart, ReadsEachValueFromWhereItIs) {
  const ParameterLayout model = Model();
  const TrainedPart part(model);
  std::vector<float> values(static_cast<size_t>(model.elements()), -1);
  const auto trained = [&](int64_t first, absl::Span<float> out) {
    for (float& value : out) value = 1000 + static_cast<float>(part.OffsetInModel(first++));
    return absl::OkStatus();
  };
  const auto frozen = [&](int64_t first, absl::Span<float> out) {
    std::iota(out.begin(), out.end(), static_cast<float>(first));
    return absl::OkStatus();
  };
  ASSERT_TRUE(part.Read(1, absl::MakeSpan(values).subspan(1), trained, frozen).ok());
  for (int64_t i = 1; i < model.elements(); ++i) {
    const bool is_frozen = model.parameters()[static_cast<size_t>(ParameterAt(model, i))].frozen;
    EXPECT_EQ(values[static_cast<size_t>(i)], static_cast<float>(i + (is_frozen ? 0 : 1000))) << i;
  }
}

}  // namespace
}  // namespace holdfast
