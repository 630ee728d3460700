#pragma once
// Rotary positions (Su et al. 2021): the table that kernels::Ops::Rope turns heads by.

#include <cstdint>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// D/2 angles a position, D = TurnedDim(): theta^(-2i/D), scaled as the config says, with the meaning that transformers
/// gives the rope types of these names:
/// - `linear` (Chen et al. 2023, arXiv 2306.15595, section 2.3): all are divided by rope_factor.
/// - `llama3`, of Llama 3.1: those with a wavelength above rope_original_length / rope_low_freq_factor are divided by
///   rope_factor, those below rope_original_length / rope_high_freq_factor stay, and between them the two are mixed,
///   linearly in rope_original_length / wavelength.
/// - `yarn` (Peng et al. 2023, arXiv 2309.00071, section 3.2): those that turn less than rope_beta_slow times in
///   rope_original_length are divided, those that turn more than rope_beta_fast times stay, and between them the two
///   are mixed. As in the authors' code, linearly in i, and with rope_truncate between whole i; the paper mixes
///   linearly in the number of turns.
/// - `longrope` (Ding et al. 2024, arXiv 2402.13753): the i-th is divided by the i-th number of rope_long_factors where
///   max_sequence_length is more than rope_original_length, else of rope_short_factors. transformers takes the long
///   ones for each sequence that is longer than the original length, and the short ones for others.
std::vector<double> RopeFrequencies(const ModelConfig& config);

/// What `yarn` multiplies rotated queries and keys by, unless a model says another factor: 0.1 m ln(rope_factor) + 1
/// with m = 1 (the same, section 3.4). transformers divides that of `mscale` by that of `mscale_all_dim` as m.
double YarnAttentionFactor(double rope_factor, double m = 1);

/// The same of `longrope`: sqrt(1 + ln(rope_factor) / ln(rope_original_length)).
double LongRopeAttentionFactor(double rope_factor, int64_t rope_original_length);

/// (max_sequence_length, D): D/2 cosines then D/2 sines of position * frequency; with `yarn` and `longrope` times the
/// factor for attention. Where layers with a window have another base, or angles that are not scaled, a second such
/// table follows, which is theirs.
std::vector<float> RopeTable(const ModelConfig& config);

/// Where in RopeTable that of a layer, counted from 1, begins.
int64_t RopeTableOffset(const ModelConfig& config, int64_t layer);

}  // namespace holdfast
