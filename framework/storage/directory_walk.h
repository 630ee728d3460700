#pragma once
// Looks at everything in a storage's directory, without following links.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// A regular file whose name is that of an object or a temporary one. Others are passed over.
struct WalkedFile {
  int directory;       // open
  std::string name;    // in it
  std::string path;    // for messages
  std::string object;  // the object's name; with a temporary last part if it is temporary
  bool temporary;
  uint64_t size;
};

struct Walk {
  /// Directories are entered only if the name of an object in them can begin so.
  std::string prefix;
  std::function<absl::Status(const WalkedFile&)> file;
  /// Or only if this says so of the object names in it, which begin with `prefix`: "a/b/". May be null.
  std::function<bool(absl::string_view prefix)> enters = nullptr;
  /// After everything in a directory: its parent, open, and its name in it. May be null.
  std::function<absl::Status(int parent, const std::string& name, const std::string& path)> left;
};

/// Ends with the first error. What disappears meanwhile was not there. Unavailable if the root is missing.
absl::Status WalkDirectory(const std::string& root, const Walk& walk);

}  // namespace holdfast
