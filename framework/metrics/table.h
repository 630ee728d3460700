#pragma once
// A table of numbers and text: for a terminal, as CSV, as JSON and in a page.

#include <string>
#include <variant>
#include <vector>

namespace holdfast {

struct Table {
  /// How many there are of something: parameters, tokens.
  struct Count {
    double value = 0;
  };
  using Cell = std::variant<double, Count, std::string>;

  std::string name;  // of its files
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as columns

  /// Aligned, numbers with five digits, counts as FormatCount shortens them, indented by two, one line for each row
  /// after one with the columns.
  std::string ToText() const;
  /// Numbers as they are, to the last bit, whole ones below 2^53 with all their digits; commas, quotes and line ends in
  /// text are quoted.
  std::string ToCsv() const;
  /// A list of objects; what is not finite is null.
  std::string ToJson() const;
  /// A <table>, numbers with six digits, counts as above.
  std::string ToHtml() const;
};

/// One self-contained page, to be looked at without a server: `title` as its heading, then `body`, which is HTML with
/// pictures as SVG in it.
std::string HtmlPage(const std::string& title, const std::string& body);

}  // namespace holdfast
