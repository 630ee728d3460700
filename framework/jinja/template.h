#pragma once
// Templates in the subset of Jinja2 that chat templates use, rendered as transformers does: trim_blocks, lstrip_blocks,
// immutable sandbox, loop controls, {% generation %}. What is not in the subset is an error (see README.md).
//
// A template decides only what it writes: it opens no file, calls nothing but what is listed, and is bounded in depth,
// steps and bytes, so one that loops for ever or grows without end is an error.
//
//   ASSIGN_OR_RETURN(const jinja::Template greeting, jinja::Template::Parse("Hi {{ name }}!"));
//   ASSIGN_OR_RETURN(const jinja::Rendered hi, greeting.Render(variables, {}));

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

struct RenderOptions {
  /// YYYY-MM-DD[ HH:MM:SS], what strftime_now tells; empty: a template that calls it is an error.
  std::string now = {};
  int64_t steps_max = 20'000'000;        // statements, expressions, elements looked at
  int64_t bytes_max = int64_t{1} << 29;  // of everything that is made on the way
};

/// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0, end = 0;
};

struct Rendered {
  std::string text;
  std::vector<Span> generations;  // what {% generation %} blocks wrote, in order
};

struct TemplateNode;

/// Thread-safe: renderings share the tree alone, and the values in it are constants.
class Template {
 public:
  /// InvalidArgument for what is no Jinja2, Unimplemented for what is not in the subset; with line, column, and the
  /// line.
  static absl::StatusOr<Template> Parse(absl::string_view source);

  /// `variables`: a dict. InvalidArgument: also if the template called raise_exception, with its message.
  absl::StatusOr<Rendered> Render(const Dict& variables, const RenderOptions& options) const;

  /// Whether it has a {% generation %} block.
  bool marks_generation() const;

 private:
  explicit Template(std::shared_ptr<const TemplateNode> root) : root_(std::move(root)) {}
  std::shared_ptr<const TemplateNode> root_;
};

}  // namespace holdfast::jinja
