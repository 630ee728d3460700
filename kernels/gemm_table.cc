#include "kernels/gemm_table.h"

#include <iomanip>
#include <sstream>
#include <utility>

namespace holdfast::kernels {
namespace {

constexpr char kHead[] = "holdfast-gemm ", kLibrary[] = "cublasLt";
constexpr char kApart[] = "apart";
constexpr int kVersion = 2;

/// One line of a table; false if it is malformed.
bool ParseLine(const std::string& line, bool may_be_apart, std::string* product,
               std::optional<GemmAlgorithm>* algorithm) {
  std::istringstream words(line);
  std::string rest;
  words >> *product;
  if (may_be_apart && words && line == *product + ' ' + kApart) {
    algorithm->reset();
    return true;
  }
  words >> std::hex;
  algorithm->emplace();
  for (uint64_t& word : **algorithm) words >> word;
  return words && !(words >> rest);
}

}  // namespace

const GemmAlgorithm* GemmTable::Find(const std::string& product) const {
  const auto found = products_.find(product);
  return found == products_.end() || !found->second.has_value() ? nullptr : &*found->second;
}

bool GemmTable::IsApart(const std::string& product) const {
  const auto found = products_.find(product);
  return found != products_.end() && !found->second.has_value();
}

std::string GemmTable::Print(size_t cublaslt_version) const {
  std::ostringstream out;
  out << kHead << kVersion << ' ' << kLibrary << ' ' << cublaslt_version << '\n' << std::hex << std::setfill('0');
  for (const auto& [product, algorithm] : products_) {
    out << product;
    if (algorithm.has_value()) {
      for (const uint64_t word : *algorithm) out << ' ' << std::setw(16) << word;
    } else {
      out << ' ' << kApart;
    }
    out << '\n';
  }
  return out.str();
}

std::string GemmTable::Parse(const std::string& text, size_t cublaslt_version) {
  std::istringstream lines(text);
  std::string line, library;
  std::getline(lines, line);
  int version = 0;
  size_t library_version = 0;
  std::istringstream head(line.rfind(kHead, 0) == 0 ? line.substr(sizeof(kHead) - 1) : "");
  head >> version >> library >> library_version;
  std::string rest;
  if (!head || library != kLibrary || head >> rest) return "its first line is not that of a table of matrix products";
  if (version < 1 || version > kVersion) {
    return "it is of format " + std::to_string(version) + ", this build reads 1 to " + std::to_string(kVersion);
  }
  if (library_version != cublaslt_version) {
    return "it is for version " + std::to_string(library_version) + " of cuBLASLt, this is version " +
           std::to_string(cublaslt_version);
  }
  std::map<std::string, std::optional<GemmAlgorithm>> products;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::string product;
    std::optional<GemmAlgorithm> algorithm;
    if (!ParseLine(line, version > 1, &product, &algorithm)) return "line " + std::to_string(number) + " is malformed";
    if (!products.emplace(product, algorithm).second) return "line " + std::to_string(number) + " is there twice";
  }
  products_ = std::move(products);
  return "";
}

}  // namespace holdfast::kernels
