#include "framework/config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace holdfast {
namespace {

constexpr char kNoAliases[] =
    "aliases (*name) are not supported; write the value again, or in quotes if it begins with a *";

/// Builds the tree from yaml-cpp's events. Containers under construction are held by value on a stack, the pending
/// key of a map with it.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(YamlTree* tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { Place(Node(YamlNode::Kind::kNull, mark)); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Problem(mark, kNoAliases);
    Place(Node(YamlNode::Kind::kNull, mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    CheckTag(mark, tag);
    YamlNode node = Node(YamlNode::Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";  // yaml-cpp: "?" plain, "!" quoted or block
    Place(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kList, mark, tag);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kMap, mark, tag);
  }
  void OnMapEnd() override { Close(); }

  /// Closes what a syntax error left open, so that what came before it is in the tree.
  void CloseAll() {
    while (!open_.empty()) {
      Close();
    }
  }

 private:
  struct OpenNode {
    YamlNode node;
    std::optional<YamlNode> key;  // of a map: read, its value still to come
  };

  static YamlNode Node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = std::max(mark.line, 0) + 1;
    return node;
  }

  void Problem(const YAML::Mark& mark, std::string message) {
    tree_->problems.push_back({std::max(mark.line, 0) + 1, std::move(message)});
  }

  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") Problem(mark, "tags (!name) are not supported");
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    CheckTag(mark, tag);
    // Ending the parse bounds the work; a file this deep is no config, so nothing useful is lost.
    if (open_.size() >= static_cast<size_t>(kMaxDepth)) throw YAML::ParserException(mark, "nested too deeply");
    open_.push_back({Node(kind, mark), std::nullopt});
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Place(std::move(node));
  }

  void Place(YamlNode node) {
    if (open_.empty()) {
      tree_->root = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key.has_value()) {
      parent.key = std::move(node);
    } else {
      parent.node.keys.push_back(std::move(*parent.key));
      parent.key.reset();
      parent.node.items.push_back(std::move(node));
    }
  }

  YamlTree* tree_;
  std::vector<OpenNode> open_;
};

void Fail(YamlTree* tree, int line, std::string message) {
  tree->complete = false;
  tree->problems.push_back({line, std::move(message)});
}

/// yaml-cpp takes a 0x04 for the end of the file and guesses encodings from zero bytes: neither may reach it.
bool CheckBytes(const std::string& text, YamlTree* tree) {
  if (text.size() > kMaxConfigBytes) {
    Fail(tree, 0, absl::StrFormat("larger than %d bytes; this is not a config file", kMaxConfigBytes));
    return false;
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    Fail(tree, 1, "UTF-16; save the file as UTF-8");
    return false;
  }
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
      Fail(tree, line, absl::StrFormat("control character 0x%02x; this is not a text file", c));
      return false;
    }
  }
  return true;
}

/// A tab in the indentation: yaml-cpp reads some of them as part of a value without a word. Blank lines may have them.
bool CheckIndentation(const std::string& text, YamlTree* tree) {
  int line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t first = text.find_first_not_of(" \t\r", begin);
    if (first < end && text[first] != '#' && text.find('\t', begin) < first) {
      Fail(tree, line, "YAML syntax: a tab in the indentation; use spaces");
      return false;
    }
    begin = end + 1;
  }
  return true;
}

}  // namespace

YamlTree ParseYaml(const std::string& text) {
  YamlTree tree;
  if (!CheckBytes(text, &tree) || !CheckIndentation(text, &tree)) return tree;
  TreeBuilder builder(&tree);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return tree;
    YamlTree second;
    TreeBuilder ignored(&second);
    if (parser.HandleNextDocument(ignored)) {
      tree.problems.push_back({second.root.line, "a second YAML document (---); a config is one document"});
    }
  } catch (const YAML::Exception& error) {
    builder.CloseAll();
    const bool alias = absl::StartsWith(error.msg, YAML::ErrorMsg::UNKNOWN_ANCHOR);
    Fail(&tree, std::max(error.mark.line, 0) + 1, alias ? kNoAliases : absl::StrFormat("YAML syntax: %s", error.msg));
  } catch (const std::exception& error) {
    builder.CloseAll();
    Fail(&tree, 0, absl::StrFormat("YAML: %s", error.what()));
  }
  return tree;
}

}  // namespace holdfast
