#pragma once
// Helpers around absl::Status, and the assertion for our own bugs.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define HOLDFAST_CONCAT_INNER(a, b) a##b
#define HOLDFAST_CONCAT(a, b) HOLDFAST_CONCAT_INNER(a, b)

/// Returns from the enclosing function if `expr` is an error.
#define RETURN_IF_ERROR(expr)                                           \
  do {                                                                  \
    if (absl::Status holdfast_status = (expr); !holdfast_status.ok()) { \
      return holdfast_status;                                           \
    }                                                                   \
  } while (false)

/// ASSIGN_OR_RETURN(auto value, Call());
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(HOLDFAST_CONCAT(holdfast_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                          \
  if (!result.ok()) return result.status();      \
  lhs = std::move(result).value()

/// For our own bugs only: prints where and ends the process.
#define HOLDFAST_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

namespace holdfast {

/// The same code and payloads with `context` put before the message: "context: message".
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", std::string(status.message())));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

/// An error from errno: "what path: No such file or directory", with the matching code (NotFound, PermissionDenied,
/// ResourceExhausted for a full disk, ...); of a limit of this process (`ulimit -f`, `-n`) with what raises it.
absl::Status ErrnoToStatus(int error, const std::string& what);

}  // namespace holdfast
