#include "framework/data/bpe_spec.h"

namespace holdfast {

std::string BpeSpec::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    const bool known = token >= 0 && static_cast<size_t>(token) < token_bytes.size() && token_bytes[token].has_value();
    text += known ? *token_bytes[token] : "\xef\xbf\xbd";
  }
  return text;
}

}  // namespace holdfast
