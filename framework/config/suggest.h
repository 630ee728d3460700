#pragma once
// "Did you mean ...?" for a word that is not among the valid ones.

#include <string>
#include <vector>

namespace holdfast {

/// The word of `valid` nearest to `word`, or "" if none is near: at most a third of the letters inserted, deleted,
/// changed or swapped with their neighbour (optimal string alignment distance), or `word` is a whole-word beginning of
/// it ("validate_every" of "validate_every_steps"). Ignores case. Of equals the first.
std::string Nearest(const std::string& word, const std::vector<std::string>& valid);

}  // namespace holdfast
