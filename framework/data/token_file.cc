#include "framework/data/token_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "xxhash.h"

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
absl::StatusOr<uint64_t> Scan(const TokenFile& file, const uint8_t* map, int64_t vocab_size) {
  const auto* tokens = reinterpret_cast<const Token*>(map + kHeaderBytes);
  constexpr int64_t kBlock = kScanBytes / sizeof(Token);
  XXH3_state_t digest;
  XXH3_64bits_reset(&digest);
  for (int64_t first = 0; first < file.num_tokens(); first += kBlock) {
    const int64_t count = std::min(kBlock, file.num_tokens() - first);
    const int64_t next = std::min(kBlock, file.num_tokens() - first - count);
    AdviseWillNeed(map, kHeaderBytes + (first + count) * sizeof(Token), next * sizeof(Token));
    XXH3_64bits_update(&digest, tokens + first, count * sizeof(Token));
    if (Largest(tokens + first, count) < vocab_size) continue;
    const auto is_bad = [&](Token token) { return token >= vocab_size; };
    const Token* bad = std::find_if(tokens + first, tokens + first + count, is_bad);
    return absl::OutOfRangeError(absl::StrCat(file.path(), ": token ", *bad, " at position ", bad - tokens,
                                              " is beyond the vocabulary of ", vocab_size,
                                              ": the file was made with another tokenizer, or is corrupt"));
  }
  return XXH3_64bits_digest(&digest);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(const std::string& path) {
  std::shared_ptr<TokenFile> file(new TokenFile());
  file->path_ = path;
  auto mapped = MappedFile::Open(path);
  if (!mapped.ok()) return Annotate(mapped.status(), "cannot open token file");
  file->file_ = *std::move(mapped);
  const size_t bytes = file->file_.size();
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it is empty"));
  Header header{};
  std::memcpy(header.data(), file->file_.data(), std::min(bytes, sizeof(header)));
  if (bytes < sizeof(header)) {
    const std::string sizes = absl::StrCat("has ", bytes, " bytes, the header alone ", kHeaderBytes);
    const bool is_ours = header[0] == kMagicUint16 || header[0] == kMagicUint32;
    if (is_ours) return absl::DataLossError(absl::StrCat(path, ": truncated: it ", sizes));
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a token file: it ", sizes));
  }
  HF_RETURN_IF_ERROR(CheckHeader(path, header, static_cast<int64_t>(bytes)));
  file->num_tokens_ = header[2];
  file->bytes_per_token_ = header[0] == kMagicUint16 ? 2 : 4;
  madvise(const_cast<uint8_t*>(file->file_.data()), bytes, bytes <= kReadWholeBytes ? MADV_WILLNEED : MADV_RANDOM);
  return file;
}

void TokenFile::Read(int64_t first, absl::Span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  HF_CHECK(first >= 0 && count <= num_tokens_ && first <= num_tokens_ - count);
  if (count == 0) return;
  const int64_t first_byte = kHeaderBytes + first * bytes_per_token_;
  const uint8_t* map = file_.data();
  if (file_.size() > kReadWholeBytes && count > 1) AdviseWillNeed(map, first_byte, count * bytes_per_token_);
  if (bytes_per_token_ == 4) {
    std::memcpy(out.data(), map + first_byte, count * sizeof(int32_t));
    return;
  }
  const auto* tokens = reinterpret_cast<const uint16_t*>(map + first_byte);
  for (int64_t i = 0; i < count; ++i) out[i] = tokens[i];
}

absl::StatusOr<uint64_t> TokenFile::CheckVocabulary(int64_t vocab_size) const {
  // Tokens are int32 from here on, whatever the vocabulary.
  const int64_t limit = std::min(vocab_size, kTokensMax);
  return bytes_per_token_ == 2 ? Scan<uint16_t>(*this, file_.data(), limit)
                               : Scan<uint32_t>(*this, file_.data(), limit);
}

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(const std::string& path, int64_t vocab_size) {
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter());
  writer->bytes_per_token_ = vocab_size <= 65536 ? 2 : 4;
  auto file = AtomicFile::Create(path);
  if (!file.ok()) return Annotate(file.status(), "cannot create token file");
  writer->file_ = *std::move(file);
  writer->buffer_.reserve(kBufferBytes);
  writer->buffer_.assign(kHeaderBytes, '\0');
  return writer;
}

absl::Status TokenFileWriter::Append(absl::Span<const int32_t> tokens) {
  HF_CHECK(file_ != nullptr);
  if (static_cast<int64_t>(tokens.size()) > kTokensMax - num_tokens_) {
    return absl::OutOfRangeError(absl::StrCat(file_->path(), ": a token file holds at most ", kTokensMax,
                                              " tokens: pack the input into several files"));
  }
  for (const int32_t token : tokens) {
    HF_CHECK(token >= 0 && (bytes_per_token_ == 4 || token <= 0xffff));
    if (buffer_.size() + 4 > kBufferBytes) {
      HF_RETURN_IF_ERROR(file_->Append(buffer_));
      buffer_.clear();
    }
    buffer_.append(reinterpret_cast<const char*>(&token), bytes_per_token_);
  }
  num_tokens_ += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  HF_CHECK(file_ != nullptr);
  HF_RETURN_IF_ERROR(file_->Append(buffer_));
  Header header{};
  header[0] = bytes_per_token_ == 2 ? kMagicUint16 : kMagicUint32;
  header[1] = bytes_per_token_ == 2 ? kVersionUint16 : kVersionUint32;
  header[2] = static_cast<int32_t>(num_tokens_);
  HF_RETURN_IF_ERROR(file_->Overwrite(0, AsBytes(absl::MakeConstSpan(header))));
  const std::unique_ptr<AtomicFile> file = std::move(file_);
  return file->Commit();
}

}  // namespace holdfast
