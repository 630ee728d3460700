#include "kernels/gemm_table.h"

#include <iomanip>
#include <sstream>
#include <utility>

namespace holdfast::kernels {
namespace {

constexpr char kHead[] = "holdfast-gemm 1 cublasLt ";

}  // namespace

const GemmAlgorithm* GemmTable::Find(const std::string& product) const {
  const auto found = algorithms_.find(product);
  return found == algorithms_.end() ? nullptr : &found->second;
}

std::string GemmTable::Print(size_t cublaslt_version) const {
  std::ostringstream out;
  out << kHead << cublaslt_version << '\n' << std::hex << std::setfill('0');
  for (const auto& [product, algorithm] : algorithms_) {
    out << product;
    for (const uint64_t word : algorithm) out << ' ' << std::setw(16) << word;
    out << '\n';
  }
  return out.str();
}

std::string GemmTable::Parse(const std::string& text, size_t cublaslt_version) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line.rfind(kHead, 0) != 0) return "its first line is not that of a table of matrix products";
  const std::string version = line.substr(sizeof(kHead) - 1);
  if (version != std::to_string(cublaslt_version)) {
    return "it is for version " + version + " of cuBLASLt, this is version " + std::to_string(cublaslt_version);
  }
  std::map<std::string, GemmAlgorithm> algorithms;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string product, rest;
    GemmAlgorithm algorithm;
    words >> product >> std::hex;
    for (uint64_t& word : algorithm) words >> word;
    if (!words || words >> rest) return "line " + std::to_string(number) + " is malformed";
    if (!algorithms.emplace(product, algorithm).second) return "line " + std::to_string(number) + " is there twice";
  }
  algorithms_ = std::move(algorithms);
  return "";
}

}  // namespace holdfast::kernels
