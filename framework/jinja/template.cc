#include "framework/jinja/template.h"

#include <utility>

#include "framework/base/status.h"
#include "framework/jinja/interpreter.h"
#include "framework/jinja/parser.h"

namespace holdfast::jinja {

absl::StatusOr<Template> Template::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(TemplateNode root, ParseTemplate(source));
  return Template(std::make_shared<const TemplateNode>(std::move(root)));
}

absl::StatusOr<Rendered> Template::Render(const Dict& variables, const RenderOptions& options) const {
  return Interpreter(*root_, variables, options).Run();
}

bool Template::marks_generation() const { return root_->marks_generation; }

}  // namespace holdfast::jinja
