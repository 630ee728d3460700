#include "framework/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include "framework/base/status.h"
#include "framework/data/file_io.h"

namespace holdfast {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and used in place");

using Header = std::array<int32_t, 256>;
constexpr int64_t kHeaderBytes = sizeof(Header);
constexpr int32_t kMagicUint16 = 20240520;
constexpr int32_t kMagicUint32 = 20240801;
constexpr int32_t kVersionUint16 = 1;
constexpr int32_t kVersionUint32 = 7;  // what llm.c writes; 1 is read too
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();
constexpr size_t kBufferBytes = 1 << 20;

// Files up to this size are read ahead as a whole; of larger ones only the sample asked for, or random access would
// drag the kernel's readahead (128 KiB and more) through memory for every 4 KiB used.
constexpr size_t kReadWholeBytes = size_t{256} << 20;
constexpr int64_t kScanBytes = 1 << 22;

absl::Status CheckHeader(const std::string& path, const Header& header, int64_t file_bytes) {
  const bool is_16 = header[0] == kMagicUint16, is_32 = header[0] == kMagicUint32;
  if (!is_16 && !is_32) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: magic is ", header[0], ", expected ",
                                                   kMagicUint16, " (uint16) or ", kMagicUint32,
                                                   " (uint32); make one with `holdfast data pack`"));
  }
  if (header[1] != 1 && !(is_32 && header[1] == kVersionUint32)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token file of unknown version ", header[1], ", expected ", is_16 ? "1" : "1 or 7"));
  }
  if (header[2] < 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": header says ", header[2], " tokens: a broken file"));
  }
  const int64_t expected = kHeaderBytes + int64_t{header[2]} * (is_16 ? 2 : 4);
  if (file_bytes == expected) return absl::OkStatus();
  const std::string sizes = absl::StrCat(": header says ", header[2], " tokens, so ", expected,
                                         " bytes, but the file has ", file_bytes, " bytes");
  if (file_bytes < expected) return absl::DataLossError(absl::StrCat(path, ": truncated", sizes));
  return absl::InvalidArgumentError(absl::StrCat(path, ": too long", sizes));
}

absl::StatusOr<int64_t> RegularFileBytes(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": a directory, not a token file"));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  return int64_t{info.st_size};
}

// The largest of `count` tokens, with an inner loop of fixed length, which the compiler turns into vector instructions.
template <typename Token>
uint32_t Largest(const Token* tokens, int64_t count) {
  constexpr int64_t kLanes = 256;
  std::array<Token, kLanes> largest{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) largest[lane] = std::max(largest[lane], tokens[i + lane]);
  }
  for (; i < count; ++i) largest[0] = std::max(largest[0], tokens[i]);
  return *std::max_element(largest.begin(), largest.end());
}

// Only advice: an error changes nothing but the speed.
void AdviseWillNeed(const uint8_t* map, int64_t first_byte, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t start = first_byte / page * page;
  madvise(const_cast<uint8_t*>(map) + start, first_byte + bytes - start, MADV_WILLNEED);
}

template <typename Token>
absl::Status Scan(const TokenFile& file, const uint8_t* map, int64_t vocab_size) {
  const auto* tokens = reinterpret_cast<const Token*>(map + kHeaderBytes);
  constexpr int64_t kBlock = kScanBytes / sizeof(Token);
  for (int64_t first = 0; first < file.num_tokens(); first += kBlock) {
    const int64_t count = std::min(kBlock, file.num_tokens() - first);
    const int64_t next = std::min(kBlock, file.num_tokens() - first - count);
    AdviseWillNeed(map, kHeaderBytes + (first + count) * sizeof(Token), next * sizeof(Token));
    if (Largest(tokens + first, count) < vocab_size) continue;
    const auto is_bad = [&](Token token) { return token >= vocab_size; };
    const Token* bad = std::find_if(tokens + first, tokens + first + count, is_bad);
    return absl::OutOfRangeError(absl::StrCat(file.path(), ": token ", *bad, " at position ", bad - tokens,
                                              " is beyond the vocabulary of ", vocab_size,
                                              ": the file was made with another tokenizer, or is corrupt"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(const std::string& path) {
  // Without O_NONBLOCK the open of a named pipe would wait for a writer.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open token file ", path));
  HF_ASSIGN_OR_RETURN(const int64_t bytes, RegularFileBytes(fd.get(), path));
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it is empty"));
  Header header{};
  HF_ASSIGN_OR_RETURN(const size_t header_bytes,
                      ReadFull(fd.get(), reinterpret_cast<char*>(header.data()), sizeof(header), path));
  if (header_bytes < sizeof(header)) {
    const std::string sizes = absl::StrCat("has ", bytes, " bytes, the header alone ", kHeaderBytes);
    const bool is_ours = header[0] == kMagicUint16 || header[0] == kMagicUint32;
    if (is_ours) return absl::DataLossError(absl::StrCat(path, ": truncated: it ", sizes));
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it ", sizes));
  }
  HF_RETURN_IF_ERROR(CheckHeader(path, header, bytes));

  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  std::shared_ptr<TokenFile> file(new TokenFile());
  file->path_ = path;
  file->map_ = static_cast<const uint8_t*>(map);
  file->map_bytes_ = bytes;
  file->num_tokens_ = header[2];
  file->bytes_per_token_ = header[0] == kMagicUint16 ? 2 : 4;
  madvise(map, bytes, file->map_bytes_ <= kReadWholeBytes ? MADV_WILLNEED : MADV_RANDOM);
  return file;
}

TokenFile::~TokenFile() {
  if (map_ != nullptr) munmap(const_cast<uint8_t*>(map_), map_bytes_);
}

void TokenFile::Read(int64_t first, absl::Span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  HF_CHECK(first >= 0 && count <= num_tokens_ && first <= num_tokens_ - count);
  if (count == 0) return;
  const int64_t first_byte = kHeaderBytes + first * bytes_per_token_;
  if (map_bytes_ > kReadWholeBytes && count > 1) AdviseWillNeed(map_, first_byte, count * bytes_per_token_);
  if (bytes_per_token_ == 4) {
    std::memcpy(out.data(), map_ + first_byte, count * sizeof(int32_t));
    return;
  }
  const auto* tokens = reinterpret_cast<const uint16_t*>(map_ + first_byte);
  for (int64_t i = 0; i < count; ++i) out[i] = tokens[i];
}

absl::Status TokenFile::CheckVocabulary(int64_t vocab_size) const {
  // Tokens are int32 from here on, whatever the vocabulary.
  const int64_t limit = std::min(vocab_size, kTokensMax);
  return bytes_per_token_ == 2 ? Scan<uint16_t>(*this, map_, limit) : Scan<uint32_t>(*this, map_, limit);
}

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(const std::string& path, int64_t vocab_size) {
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter());
  writer->path_ = path;
  writer->bytes_per_token_ = vocab_size <= 65536 ? 2 : 4;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": it exists and is not a regular file"));
  }
  // A name of another run that was killed may be in the way: take the next one.
  for (int attempt = 0; attempt < 100 && writer->fd_ < 0; ++attempt) {
    const std::string name = absl::StrCat(path, ".tmp-", getpid(), "-", attempt);
    writer->fd_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd_ >= 0) {
      writer->temporary_path_ = name;
    } else if (errno != EEXIST) {
      break;
    }
  }
  if (writer->fd_ < 0) return ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  writer->buffer_.reserve(kBufferBytes);
  writer->buffer_.assign(kHeaderBytes, '\0');
  return writer;
}

TokenFileWriter::~TokenFileWriter() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

absl::Status TokenFileWriter::Append(absl::Span<const int32_t> tokens) {
  HF_CHECK(fd_ >= 0);
  if (static_cast<int64_t>(tokens.size()) > kTokensMax - num_tokens_) {
    return absl::OutOfRangeError(
        absl::StrCat(path_, ": a token file holds at most ", kTokensMax, " tokens: pack the input into several files"));
  }
  for (const int32_t token : tokens) {
    HF_CHECK(token >= 0 && (bytes_per_token_ == 4 || token <= 0xffff));
    if (buffer_.size() + 4 > kBufferBytes) {
      HF_RETURN_IF_ERROR(WriteFull(fd_, buffer_, path_));
      buffer_.clear();
    }
    buffer_.append(reinterpret_cast<const char*>(&token), bytes_per_token_);
  }
  num_tokens_ += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  HF_CHECK(fd_ >= 0);
  HF_RETURN_IF_ERROR(WriteFull(fd_, buffer_, path_));
  Header header{};
  header[0] = bytes_per_token_ == 2 ? kMagicUint16 : kMagicUint32;
  header[1] = bytes_per_token_ == 2 ? kVersionUint16 : kVersionUint32;
  header[2] = static_cast<int32_t>(num_tokens_);
  if (pwrite(fd_, header.data(), sizeof(header), 0) != kHeaderBytes || fsync(fd_) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  }
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0 || rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  }
  temporary_path_.clear();
  return SyncDirectoryOf(path_);
}

}  // namespace holdfast
