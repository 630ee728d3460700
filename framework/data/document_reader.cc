#include "framework/data/document_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/byte_order_mark.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/data/token_file.h"

namespace holdfast {
namespace {

using std::string_view_literals::operator""sv;

struct NotText {
  size_t at;
  std::string_view bytes;  // there
  const char* advice;      // with FILE for its name
};

constexpr NotText kNotText[] = {
    {0, "PK\x03\x04"sv, "a zip archive; pipe it in: unzip -p FILE | holdfast data pack - --format text|jsonl ..."},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "xz; pipe it in: xzcat FILE | holdfast data pack - --format text|jsonl ..."},
    {4, "1AY&SY"sv, "bzip2; pipe it in: bzcat FILE | holdfast data pack - --format text|jsonl ..."},
    {257, "ustar"sv, "a tar archive; pipe it in: tar -xOf FILE | holdfast data pack - --format text|jsonl ..."},
    // Behind its magic the first field of a header in Thrift: "PAR1" alone may begin a text.
    {0, "PAR1\x15"sv,
     "Parquet; write it as JSON Lines first: pandas.read_parquet('FILE').to_json(..., orient='records', lines=True)"},
    {0, "ARROW1\0\0"sv,
     "Arrow; write it as JSON Lines first: pandas.read_feather('FILE').to_json(..., orient='records', lines=True)"},
    {0, "\xff\xfe\0\0"sv, "UTF-32; pipe it in: iconv -f UTF-32 -t UTF-8 FILE | holdfast data pack - ..."},
    {0, "\0\0\xfe\xff"sv, "UTF-32; pipe it in: iconv -f UTF-32 -t UTF-8 FILE | holdfast data pack - ..."},
    {0, "\xff\xfe"sv, "UTF-16; pipe it in: iconv -f UTF-16 -t UTF-8 FILE | holdfast data pack - ..."},
    {0, "\xfe\xff"sv, "UTF-16; pipe it in: iconv -f UTF-16 -t UTF-8 FILE | holdfast data pack - ..."},
};

absl::Status RefuseWhatIsNoText(std::string_view start, const std::string& name) {
  if (BeginsAsTokenFile(start)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a token file, which is packed already"));
  }
  if (MakeDecompressor(start) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": compressed twice; decompress it once"));
  }
  for (const NotText& kind : kNotText) {
    if (start.size() < kind.at || start.substr(kind.at, kind.bytes.size()) != kind.bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", absl::StrReplaceAll(kind.advice, {{"FILE", name}})));
  }
  return absl::OkStatus();
}

/// Where it was closed a library may have opened an epoll or an event under its number, before main.
bool IsStandardInputOpen() {
  struct stat info;
  return fstat(STDIN_FILENO, &info) == 0 && (info.st_mode & S_IFMT) != 0;
}

/// Until `out` is full or the stream ends; the number of bytes.
absl::StatusOr<size_t> ReadStream(int fd, absl::Span<char> out, const std::string& name, const std::stop_token& stop) {
  size_t done = 0;
  while (done < out.size()) {
    RETURN_IF_ERROR(WaitToRead(fd, stop));
    const ssize_t got = read(fd, out.data() + done, out.size() - done);
    if (got == 0) break;
    if (got < 0 && errno != EINTR && errno != EAGAIN) return ErrnoToStatus(errno, absl::StrCat(name, ": read"));
    if (got > 0) done += static_cast<size_t>(got);
  }
  return done;
}

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(FileAccess& files, const std::string& path, std::stop_token stop) {
  if (stop.stop_requested()) return absl::CancelledError("stopped");
  InputFile input;
  input.stop_ = std::move(stop);
  input.name_ = path == "-" ? "standard input" : path;
  if (path == "-" && !IsStandardInputOpen()) return absl::InvalidArgumentError("standard input is closed");
  struct stat info;
  const bool is_stream =
      path == "-" || (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
  if (is_stream) {
    // A named pipe would else be waited for here, and a stop not seen.
    const int flags = O_RDONLY | (input.stop_.stop_possible() ? O_NONBLOCK : 0);
    if (path != "-") input.owned_ = OpenFile(path, flags);
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
  if (stop_.stop_requested()) return absl::CancelledError("stopped");
  const size_t before = buffer.size();
  const bool is_start = offset_ == 0;
  absl::StatusOr<bool> more = decompressor_ != nullptr ? Decompress(bytes_max, buffer) : ReadStored(bytes_max, buffer);
  if (more.ok() && is_start) decompressor_ = MakeDecompressor(std::string_view(buffer).substr(before));
  if (is_start && decompressor_ != nullptr) {
    stored_ = buffer.substr(before);
    stored_left_ = stored_.size();
    more_stored_ = *more;
    buffer.resize(before);
    more = Decompress(bytes_max, buffer);
  }
  text_bytes_ += static_cast<int64_t>(buffer.size() - before);
  return more;
}

absl::StatusOr<bool> InputFile::Decompress(size_t bytes_max, std::string& buffer) {
  const size_t before = buffer.size();
  buffer.resize(before + bytes_max);
  absl::Span<char> out = absl::MakeSpan(buffer).subspan(before);
  bool more = true;
  while (more && !out.empty()) {
    if (stored_left_ == 0 && more_stored_) {
      stored_.clear();
      ASSIGN_OR_RETURN(more_stored_, ReadStored(kDocumentPieceBytes, stored_));
      stored_left_ = stored_.size();
    }
    absl::Span<const char> in(stored_.data() + stored_.size() - stored_left_, stored_left_);
    RETURN_IF_ERROR(Annotate(decompressor_->Advance(in, out), name_));
    stored_left_ = in.size();
    more = more_stored_ || stored_left_ > 0 || out.empty();
  }
  buffer.resize(buffer.size() - out.size());
  if (!more) RETURN_IF_ERROR(Annotate(decompressor_->CheckEnd(), name_));
  return more;
}

absl::StatusOr<bool> InputFile::ReadStored(size_t bytes_max, std::string& buffer) {
  const size_t before = buffer.size();
  if (file_ != nullptr) bytes_max = std::min(bytes_max, static_cast<size_t>(size_ - offset_));
  buffer.resize(before + bytes_max);
  absl::Span<char> out = absl::MakeSpan(buffer).subspan(before);
  absl::StatusOr<size_t> got = bytes_max;
  if (file_ == nullptr) {
    got = ReadStream(fd_, out, name_, stop_);
  } else if (const absl::Status read =
                 file_->ReadUnlessStopped(static_cast<uint64_t>(offset_),
                                          absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()), stop_);
             !read.ok()) {
    got = read;
  }
  buffer.resize(before + got.value_or(0));
  RETURN_IF_ERROR(got.status());
  offset_ += static_cast<int64_t>(*got);
  return file_ != nullptr ? offset_ < size_ : *got > 0;
}

std::string_view WithoutCompressionName(std::string_view path) {
  for (const std::string_view end : {".gz"sv, ".zst"sv}) {
    if (path.ends_with(end)) return path.substr(0, path.size() - end.size());
  }
  return path;
}

bool HasNameOfJsonLines(std::string_view path) {
  const std::string_view name = WithoutCompressionName(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

absl::Status NoPlaceToCut(const std::string& file, size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat(file, ": ", bytes, " bytes without a place where the tokenizer could cut; split the file"));
}

absl::Status ReadTextDocument(InputFile& file, const DocumentSink& sink) {
  std::string buffer;
  bool is_first = true, more = true;
  while (more) {
    const size_t held = buffer.size();
    if (held > kDocumentHeldBytesMax) return NoPlaceToCut(file.name(), held);
    const int64_t before = file.bytes_read();
    ASSIGN_OR_RETURN(more, file.ReadMore(kDocumentPieceBytes, buffer));
    sink.count_bytes(file.bytes_read() - before);
    if (is_first) {
      RETURN_IF_ERROR(RefuseWhatIsNoText(buffer, file.name()));
      buffer.erase(0, buffer.size() - WithoutByteOrderMark(std::string_view(buffer)).size());
    }
    is_first = false;
    ASSIGN_OR_RETURN(const size_t taken, sink.take(buffer, !more));
    buffer.erase(0, taken);
  }
  return absl::OkStatus();
}

absl::Status ReadNumberedLines(InputFile& file,
                               const std::function<absl::Status(std::string_view line, int64_t number)>& take,
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
    const int64_t before = file.bytes_read();
    ASSIGN_OR_RETURN(more, file.ReadMore(kDocumentPieceBytes, buffer));
    if (is_first) RETURN_IF_ERROR(RefuseWhatIsNoText(buffer, file.name()));
    is_first = false;
    count_bytes(file.bytes_read() - before);
    size_t begin = 0;
    while (begin < buffer.size()) {
      size_t end = buffer.find('\n', std::max(begin, searched));
      if (end == std::string::npos && more) break;
      end = std::min(end, buffer.size());
      const std::string_view line = std::string_view(buffer).substr(begin, end - begin);
      if (!IsBlank(line)) RETURN_IF_ERROR(take(line, line_number));
      ++line_number;
      begin = end + 1;
    }
    buffer.erase(0, begin);
    searched = buffer.size();
  }
  return absl::OkStatus();
}

absl::Status ReadLines(InputFile& file, const std::function<absl::Status(std::string_view line)>& take,
                       const std::function<void(int64_t bytes)>& count_bytes) {
  const auto take_numbered = [&](std::string_view line, int64_t number) {
    const absl::Status status = take(line);
    return status.ok() ? status : Annotate(status, absl::StrCat(file.name(), ":", number));
  };
  return ReadNumberedLines(file, take_numbered, count_bytes);
}

absl::Status NoJsonLine(const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; each line has to be one whole JSON object in UTF-8"));
}

absl::StatusOr<std::string> DocumentOfLine(std::string_view line, const std::string& field) {
  using Json = nlohmann::json;
  int times = 0;
  const auto count = [&](int depth, Json::parse_event_t event, const Json& value) {
    times += depth == 1 && event == Json::parse_event_t::key && value == field ? 1 : 0;
    return depth < 2;  // of a list or an object in the line nothing is asked, and it takes 25 times its text
  };
  const absl::StatusOr<Json> parsed = ParseJson(line, kJsonDepthMax, count);
  if (!parsed.ok()) return NoJsonLine(parsed.status());
  const Json& object = *parsed;
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  if (times > 1) return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is there twice; keep one"));
  const auto found = object.find(field);
  if (found == object.end()) {
    const bool is_chat = object.contains("messages") || object.contains("conversations") ||
                         (object.contains("prompt") && object.contains("completion"));
    return absl::InvalidArgumentError(absl::StrCat("no field \"", field, "\"; name the one that holds the text with ",
                                                   "--jsonl-field",
                                                   is_chat ? ", or pack conversations with --chat" : ""));
  }
  if (!found->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("field \"", field, "\" is ", JsonKind(found->type()), ", not a string"));
  }
  return found->get<std::string>();
}

}  // namespace holdfast
