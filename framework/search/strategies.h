#pragma once
// The strategies, made by MakeStrategy after it has checked their options.

#include <memory>

#include "framework/search/strategy.h"

namespace holdfast::search {

std::unique_ptr<SearchStrategy> MakeGrid(const SearchSpace& space);
std::unique_ptr<SearchStrategy> MakeRandom(const SearchSpace& space, uint64_t seed);
std::unique_ptr<SearchStrategy> MakeHalving(const SearchSpace& space, const StrategyOptions& options);
std::unique_ptr<SearchStrategy> MakeBayes(const SearchSpace& space, const StrategyOptions& options);

}  // namespace holdfast::search
