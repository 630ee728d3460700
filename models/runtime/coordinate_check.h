#pragma once
// Whether what a model computes changes as much in its first steps whatever its size (Yang et al. 2022, arXiv
// 2203.03466, appendix D.1): a parametrization that keeps that keeps the best learning rate.

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"

namespace holdfast {

/// What is looked at; of attention and MLP the sum over all layers, which is what they have added to the stream.
inline constexpr std::array kActivations = {"embedding",        "attention",   "MLP",
                                            "stream, half way", "stream, end", "logits"};

/// By kActivations: the root mean square of what has changed since initialisation.
using Changes = std::array<double, kActivations.size()>;

/// `model` with another width and depth: heads keep their size and are more or fewer, MLPs and experts grow with the
/// width. InvalidArgument if one of these numbers would not be whole.
absl::StatusOr<ModelConfig> Resized(const ModelConfig& model, int64_t hidden_size, int64_t num_layers);

/// Of config.model after `steps` steps of the config's optimizer at its learning rate, without schedule or dropout and
/// in fp32, on one microbatch of made-up tokens, on which it is measured, too: the geometric mean over `seeds` seeds.
/// FailedPrecondition if something has not changed at all, or is not finite.
absl::StatusOr<Changes> MeasureChanges(const Config& config, int64_t steps, int64_t seeds);

/// Of log(values) over log(sizes), by least squares. At least two different sizes.
double LogSlope(absl::Span<const int64_t> sizes, absl::Span<const double> values);

}  // namespace holdfast
