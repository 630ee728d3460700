#pragma once
// Adapter to yaml-cpp: text to a small tree of values with line numbers. Keeps duplicate keys (yaml-cpp's own loader
// drops them) and what came before a syntax error. No exception of yaml-cpp leaves the .cc.
//
// What a config never needs is refused, so that a hostile file costs no more than its size: text above
// kMaxConfigBytes, nesting deeper than kMaxDepth, aliases (they multiply), tags, more than one document, control
// characters.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace holdfast {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxDepth = 4;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                 // from 1
  std::string text;             // kScalar
  bool quoted = false;          // kScalar: '12' in quotes is a string, never a number
  std::vector<YamlNode> items;  // kList: its elements; kMap: its values, in file order, duplicates included
  std::vector<YamlNode> keys;   // kMap: one for each value
};

struct YamlProblem {
  int line = 0;  // from 1; 0 = the file as a whole
  std::string message;
};

struct YamlTree {
  YamlNode root;
  std::vector<YamlProblem> problems;
  bool complete = true;  // false: a problem cut the tree short, so a key that is missing from it proves nothing
};

YamlTree ParseYaml(const std::string& text);

}  // namespace holdfast
