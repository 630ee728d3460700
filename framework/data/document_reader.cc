#include "framework/data/document_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "framework/base/json_depth.h"
#include "framework/base/status.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr int kJsonDepthMax = 64;

absl::Status RefuseCompressed(std::string_view start, const std::string& name) {
  const bool is_gzip = start.substr(0, 2) == "\x1f\x8b";
  const bool is_zstd = start.substr(0, 4) == "\x28\xb5\x2f\xfd";
  if (!is_gzip && !is_zstd) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": compressed; pipe it in: ", is_gzip ? "zcat " : "zstdcat ",
                                                 name, " | holdfast data pack - --format text|jsonl ..."));
}

absl::StatusOr<std::string> DocumentOfLine(std::string_view line, const std::string& field) {
  if (JsonNestsDeeperThan(line, kJsonDepthMax)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ", kJsonDepthMax));
  }
  try {
    const nlohmann::json object = nlohmann::json::parse(line.begin(), line.end());
    if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
    const auto found = object.find(field);
    if (found == object.end()) return absl::InvalidArgumentError(absl::StrCat("no field \"", field, "\""));
    if (!found->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field \"", field, "\" is ", found->type_name(), ", not a string"));
    }
    return found->get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", error.what()));
  }
}

/// Where it was closed a library may have opened an epoll or an event under its number, before main.
bool IsStandardInputOpen() {
  struct stat info;
  return fstat(STDIN_FILENO, &info) == 0 && (info.st_mode & S_IFMT) != 0;
}

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(FileAccess& files, const std::string& path) {
  InputFile input;
  input.name_ = path == "-" ? "standard input" : path;
  if (path == "-" && !IsStandardInputOpen()) return absl::InvalidArgumentError("standard input is closed");
  struct stat info;
  const bool is_stream =
      path == "-" || (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
  if (is_stream) {
    if (path != "-") input.owned_ = OpenFile(path, O_RDONLY);
    input.fd_ = path == "-" ? STDIN_FILENO : input.owned_.get();
    if (input.fd_ < 0) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    return input;
  }
  auto file = files.Open(path);
  if (!file.ok()) return Annotate(file.status(), "cannot open text file");
  input.file_ = *std::move(file);
  input.size_ = static_cast<int64_t>(input.file_->size());
  return input;
}

absl::StatusOr<bool> InputFile::ReadMore(size_t bytes_max, std::string& buffer) {
  const size_t before = buffer.size();
  if (file_ != nullptr) bytes_max = std::min(bytes_max, static_cast<size_t>(size_ - offset_));
  buffer.resize(before + bytes_max);
  absl::Span<char> out = absl::MakeSpan(buffer).subspan(before);
  absl::StatusOr<size_t> got = bytes_max;
  if (file_ == nullptr) {
    got = ReadToEnd(fd_, out, name_);
  } else if (const absl::Status read = file_->ReadAt(
                 static_cast<uint64_t>(offset_), absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()));
             !read.ok()) {
    got = read;
  }
  buffer.resize(before + got.value_or(0));
  RETURN_IF_ERROR(got.status());
  offset_ += static_cast<int64_t>(*got);
  return *got > 0;
}

absl::Status ReadTextDocument(InputFile& file, const DocumentSink& sink) {
  std::string buffer;
  bool is_first = true, more = true;
  while (more) {
    const size_t held = buffer.size();
    if (held > kDocumentHeldBytesMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          file.name(), ": ", held, " bytes without a place where the tokenizer could cut; split the file"));
    }
    ASSIGN_OR_RETURN(more, file.ReadMore(kDocumentPieceBytes, buffer));
    if (is_first) RETURN_IF_ERROR(RefuseCompressed(buffer, file.name()));
    is_first = false;
    sink.count_bytes(static_cast<int64_t>(buffer.size() - held));
    ASSIGN_OR_RETURN(const size_t taken, sink.take(buffer, !more));
    buffer.erase(0, taken);
  }
  return absl::OkStatus();
}

absl::Status ReadLines(InputFile& file, const std::function<absl::Status(std::string_view line)>& take,
                       const std::function<void(int64_t bytes)>& count_bytes) {
  std::string buffer;
  int64_t line_number = 1;
  bool is_first = true, more = true;
  size_t searched = 0;  // no line end before this
  while (more) {
    const size_t held = buffer.size();
    if (held > kDocumentHeldBytesMax) {
      return absl::ResourceExhaustedError(absl::StrCat(file.name(), ":", line_number, ": line longer than ",
                                                       kDocumentHeldBytesMax, " bytes; is it JSONL?"));
    }
    ASSIGN_OR_RETURN(more, file.ReadMore(kDocumentPieceBytes, buffer));
    if (is_first) RETURN_IF_ERROR(RefuseCompressed(buffer, file.name()));
    is_first = false;
    count_bytes(static_cast<int64_t>(buffer.size() - held));
    size_t begin = 0;
    while (begin < buffer.size()) {
      size_t end = buffer.find('\n', std::max(begin, searched));
      if (end == std::string::npos && more) break;
      end = std::min(end, buffer.size());
      const std::string_view line = std::string_view(buffer).substr(begin, end - begin);
      const absl::Status status = IsBlank(line) ? absl::OkStatus() : take(line);
      if (!status.ok()) return Annotate(status, absl::StrCat(file.name(), ":", line_number));
      ++line_number;
      begin = end + 1;
    }
    buffer.erase(0, begin);
    searched = buffer.size();
  }
  return absl::OkStatus();
}

absl::Status ReadJsonlDocuments(InputFile& file, const std::string& field, const DocumentSink& sink) {
  const auto take = [&](std::string_view line) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string document, DocumentOfLine(line, field));
    return sink.take(document, true).status();
  };
  return ReadLines(file, take, sink.count_bytes);
}

}  // namespace holdfast
