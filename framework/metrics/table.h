#pragma once
// A table of numbers and text: for a terminal, as CSV and as JSON.

#include <string>
#include <variant>
#include <vector>

namespace holdfast {

struct Table {
  using Cell = std::variant<double, std::string>;

  std::string name;  // of its files
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as columns

  /// Aligned, numbers with five digits, indented by two, one line for each row after one with the columns.
  std::string ToText() const;
  /// Numbers as they are, to the last bit, whole ones below 2^53 with all their digits; commas, quotes and line ends in
  /// text are quoted.
  std::string ToCsv() const;
  /// A list of objects; what is not finite is null.
  std::string ToJson() const;
};

}  // namespace holdfast
