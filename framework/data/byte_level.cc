#include "framework/data/byte_level.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace holdfast {
namespace {

bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// Code point of each byte's character; all are below U+0144.
constexpr int kCodePoints = 0x144;

std::array<int, 256> CodePoints() {
  std::array<int, 256> points{};
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) points[byte] = StandsForItself(byte) ? byte : next++;
  return points;
}

std::array<int, kCodePoints> BytesOfCodePoints() {
  std::array<int, kCodePoints> bytes{};
  bytes.fill(-1);
  const std::array<int, 256> points = CodePoints();
  for (int byte = 0; byte < 256; ++byte) bytes[points[byte]] = byte;
  return bytes;
}

// What may follow a first byte: `length` bytes in all, the second in [low, high], the others in [0x80, 0xbf].
struct Utf8Shape {
  size_t length;
  uint8_t low, high;
};

Utf8Shape ShapeOf(uint8_t first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xc2 || first > 0xf4) return {0, 0, 0};
  if (first < 0xe0) return {2, 0x80, 0xbf};
  if (first < 0xf0) return {3, uint8_t(first == 0xe0 ? 0xa0 : 0x80), uint8_t(first == 0xed ? 0x9f : 0xbf)};
  return {4, uint8_t(first == 0xf0 ? 0x90 : 0x80), uint8_t(first == 0xf4 ? 0x8f : 0xbf)};
}

// How many bytes of `text` fit the shape of its first byte.
size_t FittingBytes(std::string_view text, const Utf8Shape& shape) {
  size_t fitting = 1;
  while (fitting < std::min(shape.length, text.size())) {
    const auto byte = static_cast<uint8_t>(text[fitting]);
    const uint8_t low = fitting == 1 ? shape.low : 0x80, high = fitting == 1 ? shape.high : 0xbf;
    if (byte < low || byte > high) break;
    ++fitting;
  }
  return fitting;
}

}  // namespace

std::string ByteLevelCharacter(uint8_t byte) {
  static const std::array<int, 256> points = CodePoints();
  const int point = points[byte];
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
}

std::optional<std::string> ByteLevelToBytes(std::string_view token) {
  static const std::array<int, kCodePoints> bytes = BytesOfCodePoints();
  std::string result;
  while (!token.empty()) {
    const size_t length = Utf8CharacterLength(token);
    if (length == 0 || length > 2) return std::nullopt;
    const int point = length == 1 ? token[0] : (token[0] & 0x1f) << 6 | (token[1] & 0x3f);
    if (point >= kCodePoints || bytes[point] < 0) return std::nullopt;
    result.push_back(static_cast<char>(bytes[point]));
    token.remove_prefix(length);
  }
  return result;
}

size_t Utf8CharacterLength(std::string_view text) {
  if (text.empty()) return 0;
  const Utf8Shape shape = ShapeOf(static_cast<uint8_t>(text[0]));
  return shape.length > 0 && FittingBytes(text, shape) == shape.length ? shape.length : 0;
}

bool IsUtf8Incomplete(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Shape shape = ShapeOf(static_cast<uint8_t>(text[0]));
  return text.size() < shape.length && FittingBytes(text, shape) == text.size();
}

size_t Utf8ValidLength(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    uint64_t word;
    if (text.size() - valid >= sizeof(word)) {  // eight ASCII characters at once
      std::memcpy(&word, text.data() + valid, sizeof(word));
      const uint64_t high_bits = word & 0x8080808080808080;
      valid += high_bits == 0 ? 8 : static_cast<size_t>(std::countr_zero(high_bits)) / 8;
      if (high_bits == 0) continue;
    }
    const size_t length = Utf8CharacterLength(text.substr(valid));
    if (length == 0) break;
    valid += length;
  }
  return valid;
}

}  // namespace holdfast
