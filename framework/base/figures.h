#pragma once
// What a step says of itself beside its loss, for its line of metrics.jsonl: names and numbers.

#include <string>
#include <vector>

namespace holdfast {

struct Figure {
  std::string name;            // a key of a JSON object
  std::vector<double> values;  // one, or where `is_list` one for each of a model's layers (or the like)
  bool is_list = false;
  friend bool operator==(const Figure&, const Figure&) = default;
};

}  // namespace holdfast
