#pragma once
// The enums of the config, each with its words in a config file, in the order of its values.

#include <array>
#include <cstddef>

namespace holdfast {

/// All words of an enum: kWordsOf<Transport>[1] is "mpi".
template <class Enum>
inline constexpr std::nullptr_t kWordsOf = nullptr;

enum class PositionKind { kLearned, kRope };
template <>
inline constexpr std::array kWordsOf<PositionKind> = {"learned", "rope"};

enum class NormType { kLayerNorm, kRmsNorm };
template <>
inline constexpr std::array kWordsOf<NormType> = {"layernorm", "rmsnorm"};

enum class NormPosition { kBefore, kAfter, kBoth };
template <>
inline constexpr std::array kWordsOf<NormPosition> = {"before", "after", "both"};

enum class ActivationKind { kGelu, kSwiglu, kGeglu };
template <>
inline constexpr std::array kWordsOf<ActivationKind> = {"gelu", "swiglu", "geglu"};

enum class Parametrization { kStandard, kMup, kCompleteP };
template <>
inline constexpr std::array kWordsOf<Parametrization> = {"standard", "mup", "completep"};

enum class RopeScaling { kNone, kLlama3, kLinear, kYarn, kLongRope };
template <>
inline constexpr std::array kWordsOf<RopeScaling> = {"none", "llama3", "linear", "yarn", "longrope"};

enum class RopeScalingLayers { kAll, kFullAttention };
template <>
inline constexpr std::array kWordsOf<RopeScalingLayers> = {"all", "full_attention"};

enum class ComputeDType { kBF16, kF32 };
template <>
inline constexpr std::array kWordsOf<ComputeDType> = {"bf16", "f32"};

enum class RecomputeMode { kNone, kBlock };
template <>
inline constexpr std::array kWordsOf<RecomputeMode> = {"none", "block"};

enum class OptimizerKind { kAdamW, kLion, kMuon };
template <>
inline constexpr std::array kWordsOf<OptimizerKind> = {"adamw", "lion", "muon"};

enum class ScheduleKind { kConstant, kCosine, kLinear, kWsd };
template <>
inline constexpr std::array kWordsOf<ScheduleKind> = {"constant", "cosine", "linear", "wsd"};

enum class DeviceKind { kCpu, kCuda };
template <>
inline constexpr std::array kWordsOf<DeviceKind> = {"cpu", "cuda"};

enum class GradientSumKind { kTree, kChains };
template <>
inline constexpr std::array kWordsOf<GradientSumKind> = {"tree", "chains"};

enum class ArithmeticChoice { kAuto, kPortable, kNative, kAvx512Bf16, kAmxBf16 };
template <>
inline constexpr std::array kWordsOf<ArithmeticChoice> = {"auto", "portable", "native", "avx512_bf16", "amx_bf16"};

enum class RouterScoreKind { kSoftmax, kSigmoid };
template <>
inline constexpr std::array kWordsOf<RouterScoreKind> = {"softmax", "sigmoid"};

enum class RouterBalanceKind { kPerLayer, kPooled };
template <>
inline constexpr std::array kWordsOf<RouterBalanceKind> = {"per_layer", "pooled"};

enum class Sharding { kNoShard, kShardGradOp, kFullShard };
template <>
inline constexpr std::array kWordsOf<Sharding> = {"no_shard", "shard_grad_op", "full_shard"};

enum class Transport { kGloo, kMpi, kNccl };
template <>
inline constexpr std::array kWordsOf<Transport> = {"gloo", "mpi", "nccl"};

enum class MirrorPlace { kDevice, kCpu };
template <>
inline constexpr std::array kWordsOf<MirrorPlace> = {"device", "cpu"};

enum class ExpertPlacement { kAuto, kGather, kMove };
template <>
inline constexpr std::array kWordsOf<ExpertPlacement> = {"auto", "gather", "move"};

enum class CheckpointEvery { kAuto, kNever };
template <>
inline constexpr std::array kWordsOf<CheckpointEvery> = {"auto", "never"};

enum class CheckpointCompression { kAuto, kNone, kZstd };
template <>
inline constexpr std::array kWordsOf<CheckpointCompression> = {"auto", "none", "zstd"};

enum class S3Addressing { kAuto, kPath, kHost };
template <>
inline constexpr std::array kWordsOf<S3Addressing> = {"auto", "path", "host"};

/// Name(PositionKind::kRope) is "rope".
template <class Enum>
constexpr const char* Name(Enum value) {
  return kWordsOf<Enum>[static_cast<size_t>(value)];
}

}  // namespace holdfast
