// Proves that AdamWScalar gives the same bits on a GPU as on the CPU, which is what lets a mirror in CPU memory
// follow an owner on a GPU. Random values, and the special ones: zeros, denormals, huge and tiny. Skipped without a
// GPU.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/adamw.h"
#include "tests/cuda/require_gpu.h"

namespace holdfast::kernels {
namespace {

struct Case {
  AdamWState state;
  float grad;
};

constexpr float kScale = 0.37f, kLr = 3e-4f, kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kDecay = 0.1f;
constexpr float kCorrection1 = 0.271f, kCorrection2Sqrt = 0.3776f;

HOLDFAST_CPU_AND_GPU AdamWState Update(const Case& c) {
  return AdamWScalar(c.state, c.grad, kScale, kLr, kBeta1, kBeta2, kEps, kDecay, kCorrection1, kCorrection2Sqrt);
}

__global__ void UpdateAll(const Case* cases, AdamWState* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = Update(cases[i]);
}

std::vector<Case> MakeCases() {
  const float special[] = {0.0f, -0.0f, 1e-45f, -1e-39f, 1e-30f, 1.0f, -3.5f, 1e18f, -1e18f};
  std::vector<Case> cases;
  for (const float w : special) {
    for (const float m : special) {
      for (const float g : special) cases.push_back({{w, m, m * m}, g});
    }
  }
  std::mt19937 random(20261121);
  std::normal_distribution<float> normal;
  while (cases.size() < 100000) {
    const float v = normal(random);
    cases.push_back({{normal(random), normal(random) * 1e-3f, v * v * 1e-6f}, normal(random) * 1e-2f});
  }
  return cases;
}

TEST(AdamWCuda, HasTheBitsOfTheCpu) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    HOLDFAST_NO_GPU();
  }
  const std::vector<Case> cases = MakeCases();
  const int n = static_cast<int>(cases.size());
  Case* in = nullptr;
  AdamWState* out = nullptr;
  ASSERT_EQ(cudaMalloc(&in, sizeof(Case) * cases.size()), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, sizeof(AdamWState) * cases.size()), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(in, cases.data(), sizeof(Case) * cases.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemset(out, 0xff, sizeof(AdamWState) * cases.size()), cudaSuccess);
  UpdateAll<<<(n + 255) / 256, 256>>>(in, out, n);
  std::vector<AdamWState> results(cases.size());
  ASSERT_EQ(cudaMemcpy(results.data(), out, sizeof(AdamWState) * cases.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(in);
  cudaFree(out);
  for (size_t i = 0; i < cases.size(); ++i) {
    const AdamWState expected = Update(cases[i]);
    ASSERT_EQ(std::memcmp(&expected, &results[i], sizeof(expected)), 0) << "case " << i;
  }
}

}  // namespace
}  // namespace holdfast::kernels
