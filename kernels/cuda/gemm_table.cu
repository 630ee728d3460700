#include <iomanip>
#include <sstream>
#include <utility>

#include "kernels/cuda/gemm_table.h"

namespace holdfast::kernels {
namespace {

std::string Head(size_t cublaslt_version) { return "holdfast-gemm 1 cublasLt " + std::to_string(cublaslt_version); }

}  // namespace

const GemmAlgorithm* GemmTable::Find(const std::string& product) const {
  const auto found = algorithms_.find(product);
  return found == algorithms_.end() ? nullptr : &found->second;
}

std::string GemmTable::Print(size_t cublaslt_version) const {
  std::ostringstream out;
  out << Head(cublaslt_version) << '\n' << std::hex << std::setfill('0');
  for (const auto& [product, algorithm] : algorithms_) {
    out << product;
    for (const uint64_t word : algorithm) out << ' ' << std::setw(16) << word;
    out << '\n';
  }
  return out.str();
}

bool GemmTable::Parse(const std::string& text, size_t cublaslt_version) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != Head(cublaslt_version)) return false;
  std::map<std::string, GemmAlgorithm> algorithms;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string product, rest;
    GemmAlgorithm algorithm;
    words >> product >> std::hex;
    for (uint64_t& word : algorithm) words >> word;
    if (!words || words >> rest) return false;
    if (!algorithms.emplace(product, algorithm).second) return false;
  }
  algorithms_ = std::move(algorithms);
  return true;
}

}  // namespace holdfast::kernels
