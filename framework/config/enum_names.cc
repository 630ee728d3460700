#include "framework/config/enum_names.h"

namespace holdfast {
namespace {

constexpr const char* kPositions[] = {"learned", "rope"};
constexpr const char* kNorms[] = {"layernorm", "rmsnorm"};
constexpr const char* kActivations[] = {"gelu", "swiglu"};
constexpr const char* kRopeScalings[] = {"none", "llama3"};
constexpr const char* kComputeDTypes[] = {"bf16", "f32"};
constexpr const char* kRecomputeModes[] = {"none", "block"};
constexpr const char* kOptimizers[] = {"adamw", "lion", "muon"};
constexpr const char* kSchedules[] = {"constant", "cosine", "linear", "wsd"};
constexpr const char* kDevices[] = {"cpu", "cuda"};
constexpr const char* kRouterScores[] = {"softmax", "sigmoid"};
constexpr const char* kRouterBalances[] = {"per_layer", "pooled"};
constexpr const char* kGradientSums[] = {"tree", "chains"};
constexpr const char* kArithmetics[] = {"auto", "portable", "native", "avx512_bf16", "amx_bf16"};
constexpr const char* kShardings[] = {"no_shard", "shard_grad_op", "full_shard"};
constexpr const char* kTransports[] = {"gloo", "mpi", "nccl"};
constexpr const char* kMirrorPlaces[] = {"device", "host"};
constexpr const char* kExpertPlacements[] = {"auto", "gather", "move"};
constexpr const char* kCheckpointEvery[] = {"auto", "never"};
constexpr const char* kCheckpointCompressions[] = {"auto", "none", "zstd"};

}  // namespace

absl::Span<const char* const> EnumNames(PositionKind) { return kPositions; }
absl::Span<const char* const> EnumNames(NormType) { return kNorms; }
absl::Span<const char* const> EnumNames(ActivationKind) { return kActivations; }
absl::Span<const char* const> EnumNames(RopeScaling) { return kRopeScalings; }
absl::Span<const char* const> EnumNames(ComputeDType) { return kComputeDTypes; }
absl::Span<const char* const> EnumNames(RecomputeMode) { return kRecomputeModes; }
absl::Span<const char* const> EnumNames(OptimizerKind) { return kOptimizers; }
absl::Span<const char* const> EnumNames(ScheduleKind) { return kSchedules; }
absl::Span<const char* const> EnumNames(DeviceKind) { return kDevices; }
absl::Span<const char* const> EnumNames(RouterScoreKind) { return kRouterScores; }
absl::Span<const char* const> EnumNames(RouterBalanceKind) { return kRouterBalances; }
absl::Span<const char* const> EnumNames(GradientSumKind) { return kGradientSums; }
absl::Span<const char* const> EnumNames(ArithmeticChoice) { return kArithmetics; }
absl::Span<const char* const> EnumNames(Sharding) { return kShardings; }
absl::Span<const char* const> EnumNames(Transport) { return kTransports; }
absl::Span<const char* const> EnumNames(MirrorPlace) { return kMirrorPlaces; }
absl::Span<const char* const> EnumNames(ExpertPlacement) { return kExpertPlacements; }
absl::Span<const char* const> EnumNames(CheckpointEvery) { return kCheckpointEvery; }
absl::Span<const char* const> EnumNames(CheckpointCompression) { return kCheckpointCompressions; }

}  // namespace holdfast
