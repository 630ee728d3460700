#include "framework/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/status.h"

namespace holdfast {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

using Header = std::array<int32_t, 256>;
constexpr int64_t kHeaderBytes = sizeof(Header);
// llm.c's: magic, version, number of tokens.
constexpr int32_t kMagicUint16 = 20240520;
constexpr int32_t kMagicUint32 = 20240801;
constexpr int32_t kVersionUint16 = 1;
constexpr int32_t kVersionUint32 = 7;  // what llm.c writes; 1 is read too
constexpr int64_t kPlainTokensMax = std::numeric_limits<int32_t>::max();
// Ours: magic, version, bytes per token, 1 if they have marks, int64 number of tokens, int64 tokens of a row.
constexpr int32_t kMagicOurs = 20261123;
constexpr int32_t kVersionOurs = 1;
constexpr size_t kBufferBytes = 1 << 20;

struct Described {
  TokenFileKind kind;
  int64_t num_tokens = 0;
};

Header HeaderOf(const Described& file) {
  Header header{};
  if (!file.kind.has_marks && file.kind.row_tokens == 0 && file.num_tokens <= kPlainTokensMax) {
    header[0] = file.kind.bytes_per_token == 2 ? kMagicUint16 : kMagicUint32;
    header[1] = file.kind.bytes_per_token == 2 ? kVersionUint16 : kVersionUint32;
    header[2] = static_cast<int32_t>(file.num_tokens);
    return header;
  }
  header[0] = kMagicOurs;
  header[1] = kVersionOurs;
  header[2] = file.kind.bytes_per_token;
  header[3] = file.kind.has_marks ? 1 : 0;
  const std::array<int64_t, 2> counts = {file.num_tokens, file.kind.row_tokens};
  std::memcpy(&header[4], counts.data(), sizeof(counts));
  return header;
}

absl::StatusOr<Described> ReadOurs(const std::string& path, const Header& header) {
  if (header[1] != kVersionOurs) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token file of unknown version ", header[1], ", expected ", kVersionOurs));
  }
  std::array<int64_t, 2> counts{};
  std::memcpy(counts.data(), &header[4], sizeof(counts));
  const Described file{.kind = {.bytes_per_token = header[2], .has_marks = header[3] == 1, .row_tokens = counts[1]},
                       .num_tokens = counts[0]};
  const bool good = (header[2] == 4 || (header[2] == 2 && header[3] == 0)) && (header[3] == 0 || header[3] == 1) &&
                    counts[0] >= 0 && counts[0] <= kTokensMax && counts[1] >= 0 && counts[1] <= kTokensMax;
  if (good) return file;
  return absl::DataLossError(absl::StrCat(path, ": header says ", counts[0], " tokens of ", header[2],
                                          " bytes in rows of ", counts[1], ": the file is damaged"));
}

absl::StatusOr<Described> ReadHeader(const std::string& path, const Header& header) {
  if (header[0] == kMagicOurs) return ReadOurs(path, header);
  const bool is_16 = header[0] == kMagicUint16, is_32 = header[0] == kMagicUint32;
  if (!is_16 && !is_32) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: magic is ", header[0], ", expected ",
                                                   kMagicUint16, " (uint16), ", kMagicUint32, " (uint32) or ",
                                                   kMagicOurs, " (Holdfast's); make one with `holdfast data pack`"));
  }
  if (header[1] != 1 && !(is_32 && header[1] == kVersionUint32)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token file of unknown version ", header[1], ", expected ", is_16 ? "1" : "1 or 7"));
  }
  if (header[2] < 0) {
    return absl::DataLossError(absl::StrCat(path, ": header says ", header[2], " tokens: the file is damaged"));
  }
  return Described{.kind = {.bytes_per_token = is_16 ? 2 : 4}, .num_tokens = header[2]};
}

absl::Status CheckLength(const std::string& path, const Described& file, int64_t file_bytes) {
  const int64_t expected = kHeaderBytes + file.num_tokens * file.kind.bytes_per_token;
  if (file_bytes == expected) return absl::OkStatus();
  const std::string sizes = absl::StrCat(": header says ", file.num_tokens, " tokens, so ", expected,
                                         " bytes, but the file has ", file_bytes, " bytes");
  return absl::DataLossError(absl::StrCat(path, file_bytes < expected ? ": truncated" : ": too long", sizes));
}

absl::string_view Bytes(const Header& header) { return {reinterpret_cast<const char*>(header.data()), kHeaderBytes}; }

template <typename T>
absl::Span<std::byte> BytesOf(T* values, size_t count) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(values), count * sizeof(T));
}

}  // namespace

bool BeginsAsTokenFile(std::string_view start) {
  int32_t magic = 0;
  if (start.size() < sizeof(magic)) return false;
  std::memcpy(&magic, start.data(), sizeof(magic));
  return magic == kMagicUint16 || magic == kMagicUint32 || magic == kMagicOurs;
}

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(FileAccess& files, const std::string& path) {
  auto file = files.Open(path);
  if (!file.ok()) return Annotate(file.status(), "cannot open token file");
  return Open(*std::move(file));
}

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(std::shared_ptr<const RandomAccessFile> opened) {
  std::shared_ptr<TokenFile> file(new TokenFile());
  file->file_ = std::move(opened);
  const std::string& path = file->path();
  const uint64_t bytes = file->file_->size();
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it is empty"));
  Header header{};
  const size_t there = std::min<uint64_t>(bytes, sizeof(header));
  RETURN_IF_ERROR(file->file_->ReadAt(0, absl::MakeSpan(reinterpret_cast<std::byte*>(header.data()), there)));
  if (there < sizeof(header)) {
    const std::string sizes = absl::StrCat("has ", bytes, " bytes, the header alone ", kHeaderBytes);
    const bool known = header[0] == kMagicUint16 || header[0] == kMagicUint32 || header[0] == kMagicOurs;
    if (known) return absl::DataLossError(absl::StrCat(path, ": truncated: it ", sizes));
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it ", sizes));
  }
  ASSIGN_OR_RETURN(const Described described, ReadHeader(path, header));
  RETURN_IF_ERROR(CheckLength(path, described, static_cast<int64_t>(bytes)));
  file->num_tokens_ = described.num_tokens;
  file->kind_ = described.kind;
  return file;
}

int64_t TokenFile::OffsetOfStored(int64_t begin) { return kHeaderBytes + begin; }

absl::Status TokenFile::ReadStored(int64_t begin, absl::Span<std::byte> out, const std::stop_token& stop) const {
  HOLDFAST_CHECK(begin >= 0 && begin <= token_bytes() && static_cast<int64_t>(out.size()) <= token_bytes() - begin);
  return file_->ReadUnlessStopped(static_cast<uint64_t>(OffsetOfStored(begin)), out, stop);
}

absl::Status TokenFile::Read(int64_t first, absl::Span<int32_t> out) const {
  auto* const marked = reinterpret_cast<uint32_t*>(out.data());
  RETURN_IF_ERROR(ReadMarked(first, absl::MakeSpan(marked, out.size())));
  if (kind_.has_marks) {
    for (int32_t& token : out) token &= static_cast<int32_t>(kTokenBits);
  }
  return absl::OkStatus();
}

absl::Status TokenFile::ReadMarked(int64_t first, absl::Span<uint32_t> out, const std::stop_token& stop) const {
  if (kind_.bytes_per_token == 4) return ReadStored(first * 4, BytesOf(out.data(), out.size()), stop);
  std::vector<uint16_t> stored(out.size());
  RETURN_IF_ERROR(ReadStored(first * 2, BytesOf(stored.data(), stored.size()), stop));
  std::copy(stored.begin(), stored.end(), out.begin());
  return absl::OkStatus();
}

absl::Status CheckVocabulary(const TokenFile& file, const TokenIndex& index, int64_t vocab_size) {
  constexpr int64_t kPiece = 1 << 20;
  // Tokens are int32 from here on, whatever the vocabulary.
  const int64_t limit = std::min<int64_t>(vocab_size, std::numeric_limits<int32_t>::max());
  if (index.num_tokens == 0 || index.largest < limit) return absl::OkStatus();
  std::vector<int32_t> tokens;
  for (int64_t first = 0; first < file.num_tokens(); first += kPiece) {
    tokens.resize(static_cast<size_t>(std::min(kPiece, file.num_tokens() - first)));
    RETURN_IF_ERROR(file.Read(first, absl::MakeSpan(tokens)));
    const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                  [&](int32_t token) { return static_cast<uint32_t>(token) >= limit; });
    if (bad == tokens.end()) continue;
    return absl::OutOfRangeError(absl::StrCat(file.path(), ": token ", static_cast<uint32_t>(*bad), " at position ",
                                              first + (bad - tokens.begin()), " is beyond the vocabulary of ",
                                              vocab_size,
                                              ": the file was made with another tokenizer, or one to which tokens were "
                                              "added, or is corrupt"));
  }
  return absl::DataLossError(absl::StrCat(file.path(), ": has no token ", index.largest,
                                          ", though its index says so; holdfast data verify ", file.path()));
}

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(FileAccess& files, const std::string& path,
                                                                         int64_t vocab_size) {
  return Create(files, path, TokenFileKind{.bytes_per_token = vocab_size <= 65536 ? 2 : 4});
}

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(FileAccess& files, const std::string& path,
                                                                         const TokenFileKind& kind) {
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter());
  HOLDFAST_CHECK(!kind.has_marks || kind.bytes_per_token == 4);
  writer->kind_ = kind;
  for (auto [file, at] : {std::pair(&writer->file_, path), {&writer->index_file_, TokenIndexPath(path)}}) {
    auto created = files.Create(at);
    if (!created.ok()) return Annotate(created.status(), "cannot create token file");
    *file = *std::move(created);
  }
  RETURN_IF_ERROR(writer->file_->Append(Bytes(Header{})));
  writer->index_ = std::make_unique<TokenIndexBuilder>(kind.bytes_per_token, kind.has_marks ? kTokenBits : ~0U);
  writer->buffer_.reserve(kBufferBytes);
  return writer;
}

absl::Status TokenFileWriter::Count(size_t tokens) {
  HOLDFAST_CHECK(file_ != nullptr && !prepared_);
  if (static_cast<int64_t>(tokens) > kTokensMax - num_tokens_) {
    return absl::OutOfRangeError(absl::StrCat(file_->path(), ": a token file holds at most ", kTokensMax,
                                              " tokens: pack the input into several files"));
  }
  num_tokens_ += static_cast<int64_t>(tokens);
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Put(uint32_t token) {
  if (buffer_.size() + 4 > kBufferBytes) RETURN_IF_ERROR(Flush());
  buffer_.append(reinterpret_cast<const char*>(&token), kind_.bytes_per_token);
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Append(absl::Span<const int32_t> tokens) {
  RETURN_IF_ERROR(Count(tokens.size()));
  for (const int32_t token : tokens) {
    HOLDFAST_CHECK(token >= 0 && (kind_.bytes_per_token == 4 || token <= 0xffff));
    RETURN_IF_ERROR(Put(static_cast<uint32_t>(token)));
  }
  return absl::OkStatus();
}

absl::Status TokenFileWriter::AppendMarked(absl::Span<const uint32_t> tokens) {
  HOLDFAST_CHECK(kind_.has_marks);
  RETURN_IF_ERROR(Count(tokens.size()));
  for (const uint32_t token : tokens) RETURN_IF_ERROR(Put(token));
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Flush() {
  index_->Append(buffer_);
  RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Prepare() {
  HOLDFAST_CHECK(file_ != nullptr && !prepared_);
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(file_->Overwrite(0, Bytes(HeaderOf({kind_, num_tokens_}))));
  RETURN_IF_ERROR(index_file_->Append(FormatTokenIndex(index_->Finish())));
  RETURN_IF_ERROR(file_->Sync());
  RETURN_IF_ERROR(index_file_->Sync());
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  if (!prepared_) RETURN_IF_ERROR(Prepare());
  const std::unique_ptr<OutputFile> file = std::move(file_), index_file = std::move(index_file_);
  RETURN_IF_ERROR(file->Commit());
  return index_file->Commit();
}

absl::StatusOr<TokenIndex> ReadTokenIndex(FileAccess& files, const std::string& token_file) {
  const std::string path = TokenIndexPath(token_file);
  ASSIGN_OR_RETURN(const auto file, files.Open(path));
  ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(*file, kTokenIndexBytesMax));
  return ParseTokenIndex(bytes, path);
}

absl::Status CheckIndexPlace(const std::string& token_file) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(TokenIndexPath(token_file), error);
  if (error || bytes == 0) return absl::OkStatus();
  LocalFileAccess files;
  const absl::Status status = ReadTokenIndex(files, token_file).status();
  if (!absl::IsInvalidArgument(status)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(status.message(), ", and is not replaced; move it, or that file"));
}

absl::Status WriteTokenIndex(FileAccess& files, const std::string& token_file, const TokenIndex& index) {
  ASSIGN_OR_RETURN(const auto file, files.Create(TokenIndexPath(token_file)));
  RETURN_IF_ERROR(file->Append(FormatTokenIndex(index)));
  return file->Commit();
}

}  // namespace holdfast
