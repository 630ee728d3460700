#include "framework/config/load.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/config/config_reader.h"
#include "framework/config/config_table.h"
#include "framework/config/field_text.h"
#include "framework/config/yaml_tree.h"

namespace holdfast {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

absl::Status CannotRead(const std::string& path, int error) {
  return ErrnoToStatus(error, absl::StrCat("cannot read config ", path));
}

/// InvalidArgument for a pipe with a name, for which perhaps nobody is there to write into it. One without, as `<(...)`
/// and a shell's | make it, has its writer.
absl::Status CheckIsNoNamedPipe(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  struct statfs system;
  if (fstat(file.get(), &info) != 0 || !S_ISFIFO(info.st_mode)) return absl::OkStatus();
  const bool has_no_name = fstatfs(file.get(), &system) == 0 && system.f_type == PIPEFS_MAGIC;
  return has_no_name ? absl::OkStatus() : CheckIsRegular(info, path);
}

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  FileDescriptor opened = OpenFile(path, O_RDONLY | O_NONBLOCK);  // a pipe would block
  if (!opened.ok()) return CannotRead(path, errno);
  RETURN_IF_ERROR(CheckIsNoNamedPipe(opened, path));
  fcntl(opened.get(), F_SETFL, 0);  // reading waits
  const std::unique_ptr<std::FILE, FileCloser> file(fdopen(opened.get(), "rb"));
  if (file == nullptr) return CannotRead(path, errno);
  opened.Release();
  std::string text(kMaxConfigBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return CannotRead(path, errno);
  return text;
}

absl::StatusOr<Config> LoadConfig(const std::string& path, absl::Span<const std::string> overrides,
                                  const ModelSources& models) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ParseConfig(text, path, overrides, models);
}

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name,
                                   absl::Span<const std::string> overrides, const ModelSources& models) {
  ConfigReader reader(name, {overrides.begin(), overrides.end()}, models.families);
  reader.ReadFile(text);
  reader.ReadOverrides();
  return reader.Finish(models, Keeper::kUser);
}

absl::StatusOr<Config> LoadStoredConfig(const std::string& path, absl::Span<const FamilyPreset> families) {
  RETURN_IF_ERROR(CheckIsFile(path));
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ParseStoredConfig(text, path, families);
}

absl::StatusOr<Config> ParseStoredConfig(const std::string& text, const std::string& name,
                                         absl::Span<const FamilyPreset> families) {
  ConfigReader reader(name, {}, families);
  reader.ReadFile(text);
  return reader.Finish({.families = families}, Keeper::kRun);
}

std::string PrintConfig(const Config& config) {
  Config copy = config;  // the table points into a config that it may change
  std::string text;
  for (const Section& section : ConfigTable(&copy)) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", section.name, ":\n");
    for (const Field& field : section.fields) {
      absl::StrAppend(&text, PrintField(field, "  "));
    }
  }
  return text;
}

std::map<std::string, std::string> ValuesByKey(const std::string& printed) {
  std::map<std::string, std::string> values;
  std::string section;
  std::string* last = nullptr;
  for (const absl::string_view line : absl::StrSplit(printed, '\n', absl::SkipEmpty())) {
    if (line[0] != ' ') {
      section = std::string(line.substr(0, line.find(':')));
    } else if (absl::string_view item = absl::StripLeadingAsciiWhitespace(line); absl::ConsumePrefix(&item, "- ")) {
      if (last != nullptr) absl::StrAppend(last, last->empty() ? "" : ", ", item);
    } else {
      const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, absl::MaxSplits(':', 1));
      last = &values[absl::StrCat(section, ".", parts.first)];
      *last = std::string(absl::StripLeadingAsciiWhitespace(parts.second));
    }
  }
  return values;
}

}  // namespace holdfast
