#pragma once
// Names of the files mutual TLS needs.

#include <string>

namespace holdfast {

/// PEM files; all or none are named. Each side shows `certificate` and accepts those that `authority` has signed.
struct TlsFiles {
  std::string certificate{}, key{}, authority{};
  bool enabled() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

}  // namespace holdfast
