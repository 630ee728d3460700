#pragma once
// Names and values of a request or an answer.

#include <string>
#include <utility>
#include <vector>

namespace holdfast {

/// In any order. Header names in lower case.
using Fields = std::vector<std::pair<std::string, std::string>>;

}  // namespace holdfast
