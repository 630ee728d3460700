// Proves that the vector Lion equals LionScalar (kernels/lion.h), the definition, bit for bit.

#include "kernels/lion.h"

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

struct Tensors {
  std::vector<float> weight, exp_avg, grad;
  std::vector<uint16_t> bf16;

  Tensors(Rng& rng, int64_t n)
      : weight(RandomVector(rng, n)),
        exp_avg(RandomVector(rng, n, 0.01f)),
        grad(RandomVector(rng, n, 0.01f)),
        bf16(static_cast<size_t>(n) + 1, 0x7fa7) {
    for (size_t i = 0; i < grad.size(); i += 5) grad[i] = exp_avg[i] = 0;  // whose sign is 0
  }

  LionArgs Args() {
    LionArgs args;
    args.n = static_cast<int64_t>(weight.size());
    args.weight = weight.data(), args.exp_avg = exp_avg.data(), args.grad = grad.data(), args.weight_bf16 = bf16.data();
    args.grad_scale = 0.73f;
    args.lr = 3e-4f, args.beta1 = 0.9f, args.beta2 = 0.99f, args.weight_decay = 0.1f;
    return args;
  }
};

TEST(Lion, EqualsTheScalarDefinition) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const int64_t n : {1, 7, 8, 9, 15, 33, 1000, 200003}) {
    Tensors t(rng, n);
    const Tensors before = t;
    const LionArgs a = t.Args();
    ops->Lion(a);
    for (size_t i = 0; i < t.weight.size(); ++i) {
      const LionState s = LionScalar({before.weight[i], before.exp_avg[i]}, before.grad[i], a.grad_scale, a.lr, a.beta1,
                                     a.beta2, a.weight_decay);
      ASSERT_EQ(FloatToBits(t.weight[i]), FloatToBits(s.weight)) << i;
      ASSERT_EQ(FloatToBits(t.exp_avg[i]), FloatToBits(s.exp_avg)) << i;
      ASSERT_EQ(t.bf16[i], ToBf16(s.weight)) << i;
    }
    EXPECT_EQ(t.bf16.back(), 0x7fa7) << "wrote beyond the end";
  }
}

TEST(Lion, MovesEveryWeightByTheLearningRateOrNotAtAll) {
  Rng rng(NewSeed());
  TestOps ops(1);
  Tensors t(rng, 1000);
  for (float& weight : t.weight) weight = 0;
  LionArgs args = t.Args();
  args.weight_bf16 = nullptr;
  ops->Lion(args);
  for (size_t i = 0; i < t.weight.size(); ++i) {
    EXPECT_EQ(std::abs(t.weight[i]), i % 5 == 0 ? 0.0f : args.lr) << i;
  }
  EXPECT_EQ(t.bf16[0], 0x7fa7);
}

TEST(Lion, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    Tensors t(rng, 300001);
    ops->Lion(t.Args());
    return t.weight;
  });
}

}  // namespace
}  // namespace holdfast::kernels
