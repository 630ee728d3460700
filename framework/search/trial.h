#pragma once
// What a search strategy knows of trials, and what it says is next.

#include <cstdint>
#include <optional>
#include <string>

#include "framework/search/space.h"

namespace holdfast::search {

/// Failed: crashed or diverged. Refused: a point of which there is nothing to begin, and which has cost nothing.
enum class TrialOutcome { kRunning, kMeasured, kFailed, kRefused };

struct Observation {
  int64_t trial = 0;  // number from 0 in the order of suggestions
  Point point = {};
  int64_t rung = 0;                       // 0 unless the strategy has several
  std::optional<int64_t> continues = {};  // the trial whose run it takes up at a higher rung
  TrialOutcome outcome = TrialOutcome::kRunning;
  double value = 0;  // of kMeasured: what is minimised. NaN and infinities count as kFailed
  double cost = 0;   // in the units of the budget (FLOPs, tokens, seconds); what is not finite and positive is unknown
};

struct Suggestion {
  Point point = {};
  int64_t rung = 0;
  std::optional<int64_t> continues = {};
  std::string why = {};  // one sentence for people: why this one is next
};

}  // namespace holdfast::search
