#include "checkpoint/sharded/codec.h"

#include <immintrin.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kValueBytes = 4;
constexpr size_t kBlockValues = 16;

__m128i Load(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
void Store(__m128i value, std::byte* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

// At most 97% of the plain size: a smaller gain is not worth the time to undo it.
size_t MaxCompressedBytes(size_t plain) { return plain - plain * 3 / 100 - 1; }

// The frame header says what is inside; only then may the decoder run. Old formats, which it would take too, are
// refused by the magic number, skippable frames as well.
absl::Status CheckFrame(absl::Span<const std::byte> stored, size_t decoded_bytes) {
  uint32_t magic = 0;
  if (stored.size() >= sizeof magic) std::memcpy(&magic, stored.data(), sizeof magic);
  if (magic != ZSTD_MAGICNUMBER) return absl::DataLossError("a compressed piece is no zstd frame");
  const unsigned long long content = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (content != decoded_bytes) {
    return absl::DataLossError(
        absl::StrCat("a compressed piece does not say that it holds ", decoded_bytes, " bytes, as it must"));
  }
  if (ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return absl::DataLossError("a compressed piece is not exactly one zstd frame");
  }
  return absl::OkStatus();
}

void Grow(std::vector<std::byte>* buffer, size_t bytes) {
  if (buffer->size() < bytes) buffer->resize(bytes);
}

}  // namespace

// Sixteen values at a time, by instructions that every x86-64-v3 processor has: the compiler does not find them at -O2,
// and without them the shuffle takes as long as the compression (1 GB/s; these 30).
void ShuffleBytes(absl::Span<const std::byte> in, absl::Span<std::byte> out) {
  HOLDFAST_CHECK(in.size() == out.size() && in.size() % kValueBytes == 0);
  const size_t values = in.size() / kValueBytes;
  const std::byte* from = in.data();
  std::byte* to = out.data();
  size_t i = 0;
  for (; i + kBlockValues <= values; i += kBlockValues) {
    const std::byte* block = from + kValueBytes * i;
    const __m128i by_byte = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i a = _mm_shuffle_epi8(Load(block), by_byte);
    const __m128i b = _mm_shuffle_epi8(Load(block + 16), by_byte);
    const __m128i c = _mm_shuffle_epi8(Load(block + 32), by_byte);
    const __m128i d = _mm_shuffle_epi8(Load(block + 48), by_byte);
    const __m128i ab01 = _mm_unpacklo_epi32(a, b), ab23 = _mm_unpackhi_epi32(a, b);
    const __m128i cd01 = _mm_unpacklo_epi32(c, d), cd23 = _mm_unpackhi_epi32(c, d);
    Store(_mm_unpacklo_epi64(ab01, cd01), to + i);
    Store(_mm_unpackhi_epi64(ab01, cd01), to + values + i);
    Store(_mm_unpacklo_epi64(ab23, cd23), to + 2 * values + i);
    Store(_mm_unpackhi_epi64(ab23, cd23), to + 3 * values + i);
  }
  for (; i < values; ++i) {
    for (size_t plane = 0; plane < kValueBytes; ++plane) to[plane * values + i] = from[kValueBytes * i + plane];
  }
}

void UnshuffleBytes(absl::Span<const std::byte> in, absl::Span<std::byte> out) {
  HOLDFAST_CHECK(out.size() <= in.size() && in.size() % kValueBytes == 0 && out.size() % kValueBytes == 0);
  const size_t values = in.size() / kValueBytes;
  const size_t wanted = out.size() / kValueBytes;
  const std::byte* from = in.data();
  std::byte* to = out.data();
  size_t i = 0;
  for (; i + kBlockValues <= wanted; i += kBlockValues) {
    const __m128i p0 = Load(from + i), p1 = Load(from + values + i);
    const __m128i p2 = Load(from + 2 * values + i), p3 = Load(from + 3 * values + i);
    const __m128i low01 = _mm_unpacklo_epi8(p0, p1), high01 = _mm_unpackhi_epi8(p0, p1);
    const __m128i low23 = _mm_unpacklo_epi8(p2, p3), high23 = _mm_unpackhi_epi8(p2, p3);
    std::byte* block = to + kValueBytes * i;
    Store(_mm_unpacklo_epi16(low01, low23), block);
    Store(_mm_unpackhi_epi16(low01, low23), block + 16);
    Store(_mm_unpacklo_epi16(high01, high23), block + 32);
    Store(_mm_unpackhi_epi16(high01, high23), block + 48);
  }
  for (; i < wanted; ++i) {
    for (size_t plane = 0; plane < kValueBytes; ++plane) to[kValueBytes * i + plane] = from[plane * values + i];
  }
}

struct PieceEncoder::Context {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  Context() {
    if (zstd == nullptr) throw std::bad_alloc();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeCCtx(zstd); }
};

PieceEncoder::PieceEncoder(int level) : level_(level), context_(std::make_unique<Context>()) {}

PieceEncoder::~PieceEncoder() = default;

absl::Span<const std::byte> PieceEncoder::Compress(absl::Span<const std::byte> values) {
  if (values.empty()) return {};
  Grow(&shuffled_, values.size());
  Grow(&compressed_, values.size());
  ShuffleBytes(values, absl::MakeSpan(shuffled_).first(values.size()));
  const size_t size = ZSTD_compressCCtx(context_->zstd, compressed_.data(), MaxCompressedBytes(values.size()),
                                        shuffled_.data(), values.size(), level_);
  if (ZSTD_isError(size)) return {};  // it did not fit: does not pay
  return absl::MakeConstSpan(compressed_).first(size);
}

struct PieceDecoder::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  Context() {
    if (zstd == nullptr) throw std::bad_alloc();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeDCtx(zstd); }
};

PieceDecoder::PieceDecoder() : context_(std::make_unique<Context>()) {}

PieceDecoder::~PieceDecoder() = default;

absl::Status PieceDecoder::Decode(absl::Span<const std::byte> stored, bool compressed, size_t decoded_bytes,
                                  absl::Span<std::byte> out) {
  if (decoded_bytes > kMaxPieceBytes || decoded_bytes % kValueBytes != 0 || out.size() > decoded_bytes) {
    return absl::DataLossError(absl::StrCat("a piece of ", decoded_bytes, " bytes cannot be"));
  }
  if (!compressed) {
    if (stored.size() != decoded_bytes) {
      return absl::DataLossError(absl::StrCat("a piece has ", stored.size(), " bytes instead of ", decoded_bytes));
    }
    if (!out.empty()) std::memcpy(out.data(), stored.data(), out.size());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckFrame(stored, decoded_bytes));
  Grow(&shuffled_, decoded_bytes);
  const size_t size =
      ZSTD_decompressDCtx(context_->zstd, shuffled_.data(), decoded_bytes, stored.data(), stored.size());
  if (size != decoded_bytes) {
    const char* why = ZSTD_isError(size) ? ZSTD_getErrorName(size) : "shorter than it says";
    return absl::DataLossError(absl::StrCat("a compressed piece is damaged: ", why));
  }
  UnshuffleBytes(absl::MakeConstSpan(shuffled_).first(decoded_bytes), out);
  return absl::OkStatus();
}

}  // namespace holdfast
