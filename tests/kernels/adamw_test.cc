// Proves that the vector AdamW equals AdamWScalar (kernels/adamw.h), the definition, bit for bit.

#include "kernels/adamw.h"

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

struct Tensors {
  std::vector<float> weight, exp_avg, exp_avg_sq, grad;
  std::vector<uint16_t> bf16;

  explicit Tensors(size_t n) : weight(n), exp_avg(n), exp_avg_sq(n), grad(n), bf16(n + 1, 0x7fa7) {}

  AdamWArgs Args() {
    AdamWArgs args;
    args.n = static_cast<int64_t>(weight.size());
    args.weight = weight.data(), args.exp_avg = exp_avg.data(), args.exp_avg_sq = exp_avg_sq.data();
    args.grad = grad.data(), args.weight_bf16 = bf16.data();
    args.grad_scale = 0.73f;
    args.lr = 3e-4f, args.beta1 = 0.9f, args.beta2 = 0.95f, args.eps = 1e-8f, args.weight_decay = 0.1f;
    args.bias_correction1 = 1 - 0.9f * 0.9f, args.bias_correction2_sqrt = std::sqrt(1 - 0.95f * 0.95f);
    return args;
  }
};

/// Any sign and magnitude, with zeros, denormals and values near overflow among them.
float AnyMagnitude(Rng& rng) {
  const float special[] = {0.0f, -0.0f, 1e-45f, -1e-40f, 1.1754944e-38f, 3e38f, -3e38f, 1e19f, 1e-20f, 1.0f};
  if (rng() % 4 == 0) return special[rng() % std::size(special)];
  const uint32_t exponent = static_cast<uint32_t>(rng() % 255);
  return BitsToFloat((static_cast<uint32_t>(rng()) & 0x807fffffu) | exponent << 23);
}

void ExpectScalarBits(const AdamWArgs& a, const Tensors& before, const Tensors& after) {
  for (size_t i = 0; i < before.weight.size(); ++i) {
    const AdamWState s =
        AdamWScalar({before.weight[i], before.exp_avg[i], before.exp_avg_sq[i]}, before.grad[i], a.grad_scale, a.lr,
                    a.beta1, a.beta2, a.eps, a.weight_decay, a.bias_correction1, a.bias_correction2_sqrt);
    const auto same = [](float x, float y) {
      return FloatToBits(x) == FloatToBits(y) || (std::isnan(x) && std::isnan(y));
    };
    ASSERT_TRUE(same(after.weight[i], s.weight)) << i << ": " << after.weight[i] << " for " << s.weight;
    ASSERT_TRUE(same(after.exp_avg[i], s.exp_avg)) << i;
    ASSERT_TRUE(same(after.exp_avg_sq[i], s.exp_avg_sq)) << i;
    ASSERT_EQ(after.bf16[i], ToBf16(after.weight[i])) << i;
  }
  EXPECT_EQ(after.bf16.back(), 0x7fa7) << "wrote beyond the end";
}

TEST(AdamW, EqualsTheScalarDefinition) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (size_t n : {1, 7, 8, 9, 15, 33, 1000, 200003}) {
    Tensors t(n);
    t.weight = RandomVector(rng, static_cast<int64_t>(n));
    t.grad = RandomVector(rng, static_cast<int64_t>(n), 0.01f);
    AdamWArgs args = t.Args();
    for (int step = 0; step < 3; ++step) {
      const Tensors before = t;
      ops->AdamW(args);
      ExpectScalarBits(args, before, t);
    }
  }
}

TEST(AdamW, EqualsTheScalarDefinitionOnExtremeValues) {
  Rng rng(NewSeed());
  TestOps ops(1);
  Tensors t(100003);
  for (auto* values : {&t.weight, &t.exp_avg, &t.exp_avg_sq, &t.grad}) {
    for (float& value : *values) value = AnyMagnitude(rng);
  }
  for (float& value : t.exp_avg_sq) value = std::abs(value);
  const Tensors before = t;
  const AdamWArgs args = t.Args();
  ops->AdamW(args);
  ExpectScalarBits(args, before, t);
}

TEST(AdamW, WithoutABf16Copy) {
  Rng rng(NewSeed());
  TestOps ops(1);
  Tensors with(77);
  with.weight = RandomVector(rng, 77);
  with.grad = RandomVector(rng, 77);
  Tensors without = with;
  ops->AdamW(with.Args());
  AdamWArgs args = without.Args();
  args.weight_bf16 = nullptr;
  ops->AdamW(args);
  EXPECT_EQ(with.weight, without.weight);
  EXPECT_EQ(without.bf16[0], 0x7fa7);
}

TEST(AdamW, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    Tensors t(300001);
    t.weight = RandomVector(rng, 300001);
    t.grad = RandomVector(rng, 300001);
    ops->AdamW(t.Args());
    return t.weight;
  });
}

}  // namespace
}  // namespace holdfast::kernels
