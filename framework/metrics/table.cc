#include "framework/metrics/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "framework/metrics/progress.h"
#include "framework/metrics/xml_text.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr int kTextDigits = 5, kPageDigits = 6;

bool IsText(const Table::Cell& cell) { return std::holds_alternative<std::string>(cell); }

double NumberIn(const Table::Cell& cell) {
  const auto* count = std::get_if<Table::Count>(&cell);
  return count != nullptr ? count->value : std::get<double>(cell);
}

std::string CellText(const Table::Cell& cell, int digits) {
  if (IsText(cell)) return std::get<std::string>(cell);
  if (const auto* count = std::get_if<Table::Count>(&cell)) return FormatCount(count->value);
  return absl::StrFormat("%.*g", digits, std::get<double>(cell));
}

std::string CellCsv(const Table::Cell& cell) {
  if (!IsText(cell)) {
    const double number = NumberIn(cell);
    char text[32];
    // Whole numbers that a double holds exactly have all their digits (parameters, tokens); all others are the shortest
    // text that reads back as the same number.
    const bool whole = std::abs(number) < 0x1p53 && std::trunc(number) == number;
    char* const end = whole ? std::to_chars(std::begin(text), std::end(text), number, std::chars_format::fixed).ptr
                            : std::to_chars(std::begin(text), std::end(text), number).ptr;
    return {text, end};
  }
  const std::string& text = std::get<std::string>(cell);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string Table::ToText() const {
  std::vector<size_t> widths;
  for (const std::string& column : columns) widths.push_back(column.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], CellText(row[i], kTextDigits).size());
  }
  std::string text;
  const auto append = [&](size_t i, const std::string& cell, bool right) {
    const std::string room(widths[i] - cell.size(), ' ');
    absl::StrAppend(&text, "  ", right ? room : cell, right ? cell : (i + 1 < columns.size() ? room : ""));
  };
  for (size_t i = 0; i < columns.size(); ++i) append(i, columns[i], !rows.empty() && !IsText(rows[0][i]));
  text += "\n";
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) append(i, CellText(row[i], kTextDigits), !IsText(row[i]));
    text += "\n";
  }
  return text;
}

std::string Table::ToCsv() const {
  const auto cell = [](std::string* out, const Cell& of) { out->append(CellCsv(of)); };
  std::string csv = absl::StrCat(absl::StrJoin(columns, ",", cell), "\n");
  for (const auto& row : rows) absl::StrAppend(&csv, absl::StrJoin(row, ",", cell), "\n");
  return csv;
}

std::string Table::ToJson() const {
  auto list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    nlohmann::ordered_json object;
    for (size_t i = 0; i < row.size(); ++i) {
      if (IsText(row[i])) {
        object[columns[i]] = std::get<std::string>(row[i]);
      } else {
        object[columns[i]] = NumberIn(row[i]);
      }
    }
    list.push_back(std::move(object));
  }
  return absl::StrCat(list.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace), "\n");
}

std::string Table::ToHtml() const {
  std::string html = "<table>\n<tr>";
  for (const std::string& column : columns) absl::StrAppend(&html, "<th>", XmlText(column), "</th>");
  html += "</tr>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (const Cell& cell : row) {
      absl::StrAppend(&html, "<td>", XmlText(CellText(cell, kPageDigits)), "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", XmlText(title),
      "</title>\n<style>body{font-family:sans-serif;max-width:1700px;margin:2em auto;padding:0 1em}"
      "svg{max-width:800px;height:auto}table{border-collapse:collapse;font-size:13px}"
      "td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ccc}</style></head>\n<body>\n<h1>",
      XmlText(title), "</h1>\n", body, "</body></html>\n");
}

}  // namespace holdfast
