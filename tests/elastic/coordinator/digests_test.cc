// Proves which settings have to be equal among workers, and which decide a run's bits.

#include <gtest/gtest.h>

#include "elastic/coordinator/run_digests.h"
#include "framework/base/limits.h"
#include "framework/config/decides.h"

namespace holdfast {
namespace {

TEST(Digests, ATableOfMatrixProductsCountsByWhatItHoldsAndNotByItsPlace) {
  Config config;
  config.train.device = DeviceKind::kCuda;
  config.train.gemm_table = "/here/a.gemm";
  config.train.gemm_table_digest = "0123456789abcdef";
  Config elsewhere = config;
  elsewhere.train.gemm_table = "/there/b.gemm";
  EXPECT_EQ(ConfigDigest(elsewhere), ConfigDigest(config));
  EXPECT_EQ(BitsDigest(elsewhere), BitsDigest(config));
  Config other = config;
  other.train.gemm_table_digest = "0123456789abcdee";
  EXPECT_NE(ConfigDigest(other), ConfigDigest(config));
  EXPECT_NE(BitsDigest(other), BitsDigest(config));
}

TEST(Digests, WhatDiffersFromMachineToMachineDoesNotCount) {
  Config config, other;
  other.train.threads = 3;
  other.elastic.workers = 5;
  other.checkpoint.directory = "c";
  EXPECT_EQ(ConfigDigest(other), ConfigDigest(config));
  EXPECT_EQ(BitsDigest(other), BitsDigest(config));
  other.run.seed = 2;
  EXPECT_NE(ConfigDigest(other), ConfigDigest(config));
  EXPECT_NE(BitsDigest(other), BitsDigest(config));
}

TEST(Digests, ArithmeticDecidesBitsAndIsComparedByName) {
  Config config, other;
  config.train.arithmetic = ArithmeticChoice::kPortable;
  other.train.arithmetic = ArithmeticChoice::kAmxBf16;
  EXPECT_EQ(ConfigDigest(other), ConfigDigest(config));
  EXPECT_NE(BitsDigest(other), BitsDigest(config));
  const RunDigests digests = DigestsOf(config);
  EXPECT_EQ(digests.arithmetic, "portable");
  EXPECT_NE(digests.kernels, 0u);
  EXPECT_EQ(digests.build.size(), 16u);
  EXPECT_EQ(DigestsOf(other).arithmetic, "amx_bf16");
  config.train.device = DeviceKind::kCuda;  // whose kernels this process cannot try
  EXPECT_EQ(DigestsOf(config).arithmetic, "");
  EXPECT_EQ(DigestsOf(config).kernels, 0u);
  const RunDigests gpu = DigestsOf(config, "NVIDIA H100 80GB HBM3, cuBLASLt 130000");
  EXPECT_EQ(gpu.arithmetic, "NVIDIA H100 80GB HBM3, cuBLASLt 130000");
  EXPECT_NE(gpu.kernels, 0u);
  EXPECT_NE(DigestsOf(config, "NVIDIA A100-SXM4-80GB, cuBLASLt 130000").kernels, gpu.kernels);
}

TEST(Digests, AConfigHasAsManyKeysAsAWorkerMaySayHoweverLongItsLists) {
  Config config;
  const size_t keys = DigestsOf(config).keys.size();
  config.data.train.assign(1000, std::string(1000, 'x'));
  const RunDigests digests = DigestsOf(config);
  EXPECT_EQ(digests.keys.size(), keys);
  EXPECT_LE(digests.keys.size(), static_cast<size_t>(kMaxConfigKeys));
  for (const auto& [key, digest] : digests.keys) EXPECT_LE(key.size(), kMaxNameBytes) << key;
}

}  // namespace
}  // namespace holdfast
