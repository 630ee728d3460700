#include "framework/base/counted.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

std::string Counted(int64_t count, absl::string_view what) {
  const bool is_sibilant = absl::EndsWith(what, "s") || absl::EndsWith(what, "ch");
  return absl::StrCat(count, " ", what, count == 1 ? "" : is_sibilant ? "es" : "s");
}

}  // namespace holdfast
