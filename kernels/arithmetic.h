#pragma once
// In which arithmetic a CPU multiplies matrices of bf16 values. It decides bits, so it belongs to a run like its
// config. Everything else that kernels compute is the same on every processor anyway, and so are products with an fp32
// operand.

#include <cstdint>
#include <optional>
#include <string_view>

namespace holdfast::kernels {

enum class Arithmetic : uint8_t {
  kPortable,  ///< widened to fp32 and summed by fused multiply-adds: the same bits on every processor and vector width
  kAvx512Bf16,  ///< by VDPBF16PS, as kernels/cpu/native_dot.h defines it
  kAmxBf16,     ///< by TDPBF16PS, likewise; attention's by VDPBF16PS
};

/// "portable", "avx512_bf16", "amx_bf16".
const char* NameOf(Arithmetic arithmetic);
std::optional<Arithmetic> ArithmeticOf(std::string_view name);

/// Whether this processor (and its system) has the instructions, and computes with them what is defined here: the first
/// call with a native arithmetic tries their products on random values, and their rounding on values that tell others
/// from it.
bool CpuHas(Arithmetic arithmetic);

/// The fastest arithmetic that CpuHas.
Arithmetic FastestArithmetic();

}  // namespace holdfast::kernels
