#pragma once
// Rotary positions (Su et al. 2021): the table that kernels::Ops::Rope turns heads by.

#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// D/2 angles a position, D = TurnedDim(): theta^(-2i/D), scaled as the config says. `llama3` is the scaling of
/// Llama 3.1 (transformers documents it as rope type "llama3"): frequencies with a wavelength above
/// rope_original_length / rope_low_freq_factor are divided by rope_factor, those below rope_original_length /
/// rope_high_freq_factor stay, and between them the two are mixed, linearly in rope_original_length / wavelength.
std::vector<double> RopeFrequencies(const ModelConfig& config);

/// (max_sequence_length, D): D/2 cosines then D/2 sines of position * frequency.
std::vector<float> RopeTable(const ModelConfig& config);

}  // namespace holdfast
