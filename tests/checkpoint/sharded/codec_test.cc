// Proves that stored pieces come back bit for bit, that compression which does not pay is not used, and that no damaged
// or malicious piece is decoded, by trying every byte of one and the known kinds of bombs.

#include "checkpoint/sharded/codec.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace holdfast {
namespace {

using Bytes = std::vector<std::byte>;

Bytes NormalValues(size_t values, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  Bytes bytes(values * sizeof(float));
  for (size_t i = 0; i < values; ++i) {
    const float value = normal(random);
    std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  }
  return bytes;
}

Bytes RandomBytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

Bytes Copy(absl::Span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

Bytes ZstdFrame(const Bytes& contents, bool with_size = true) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_size ? 1 : 0);
  Bytes frame(ZSTD_compressBound(contents.size()));
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), contents.data(), contents.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

TEST(Codec, ShuffleIsThatOfHdf5) {
  const Bytes in = RandomBytes(4 * 1001, 1);
  Bytes out(in.size());
  ShuffleBytes(in, absl::MakeSpan(out));
  for (size_t i = 0; i < 1001; ++i) {
    for (size_t plane = 0; plane < 4; ++plane) ASSERT_EQ(out[plane * 1001 + i], in[i * 4 + plane]);
  }
}

TEST(Codec, UnshuffleOfAnyPrefix) {
  for (const size_t values : {0, 1, 7, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    const Bytes in = RandomBytes(4 * values, 2);
    Bytes shuffled(in.size());
    ShuffleBytes(in, absl::MakeSpan(shuffled));
    for (size_t wanted = 0; wanted <= values; ++wanted) {
      Bytes out(4 * wanted + 1, std::byte{0xAB});
      UnshuffleBytes(shuffled, absl::MakeSpan(out).first(4 * wanted));
      ASSERT_TRUE(std::equal(in.begin(), in.begin() + static_cast<long>(4 * wanted), out.begin()))
          << values << " " << wanted;
      ASSERT_EQ(out.back(), std::byte{0xAB}) << "wrote beyond the end";
    }
  }
}

TEST(Codec, RoundTrip) {
  PieceDecoder decoder;
  for (const int level : {1, 3, 9}) {
    PieceEncoder encoder(level);
    for (const size_t values : {3000, 4097, 65280, 65536}) {
      const Bytes in = NormalValues(values, static_cast<unsigned>(values));
      const Bytes stored = Copy(encoder.Compress(in));
      ASSERT_FALSE(stored.empty()) << "normal values do shrink";
      EXPECT_LE(stored.size(), in.size() * 97 / 100);
      Bytes out(in.size());
      ASSERT_TRUE(decoder.Decode(stored, true, in.size(), absl::MakeSpan(out)).ok());
      EXPECT_EQ(out, in);
      Bytes head(in.size() / 2 / 4 * 4);
      ASSERT_TRUE(decoder.Decode(stored, true, in.size(), absl::MakeSpan(head)).ok());
      EXPECT_EQ(head, Bytes(in.begin(), in.begin() + static_cast<long>(head.size())));
    }
  }
}

TEST(Codec, PlainPieces) {
  const Bytes in = RandomBytes(400, 3);
  PieceDecoder decoder;
  Bytes out(in.size());
  ASSERT_TRUE(decoder.Decode(in, false, in.size(), absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, in);
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(in, false, in.size() + 4, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(in, false, in.size() - 4, absl::MakeSpan(out).first(8))));
}

// A part that is random next to one that is constant: the share decides whether three percent are gained.
TEST(Codec, WhatDoesNotPayIsStoredPlain) {
  PieceEncoder encoder(1);
  EXPECT_TRUE(encoder.Compress(RandomBytes(size_t{256} << 10, 4)).empty());
  EXPECT_TRUE(encoder.Compress({}).empty());
  EXPECT_TRUE(encoder.Compress(Bytes(4)).empty()) << "a frame is larger than 4 bytes";
  for (const int constant_percent : {1, 2, 4, 8}) {
    Bytes in = RandomBytes(400'000, 5);
    for (size_t i = in.size() - in.size() * static_cast<size_t>(constant_percent) / 100; i < in.size(); ++i) in[i] = {};
    const size_t stored = encoder.Compress(in).size();
    if (constant_percent < 3) {
      EXPECT_EQ(stored, 0u);
    } else {
      EXPECT_GT(stored, 0u);
      EXPECT_LT(stored, in.size() * 97 / 100);
    }
  }
}

// One byte off: refused, or (a literal was hit) other bytes of the same number, which the chunk's digest finds.
TEST(Codec, EveryByteFlippedStaysInBounds) {
  PieceEncoder encoder(1);
  PieceDecoder decoder;
  Bytes in = NormalValues(300, 6);
  for (size_t i = 0; i < in.size(); i += 4) in[i] = {};  // so that it shrinks
  const Bytes stored = Copy(encoder.Compress(in));
  ASSERT_FALSE(stored.empty());
  int refused = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = stored;
      damaged[i] ^= std::byte{1} << bit;
      Bytes out(in.size() + 64, std::byte{0xAB});
      const absl::Status status = decoder.Decode(damaged, true, in.size(), absl::MakeSpan(out).first(in.size()));
      refused += !status.ok();
      ASSERT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
      for (size_t k = in.size(); k < out.size(); ++k) ASSERT_EQ(out[k], std::byte{0xAB});
    }
  }
  EXPECT_GT(refused, 40) << "magic and header at least";
  for (size_t length = 0; length < stored.size(); ++length) {
    Bytes out(in.size());
    const auto part = absl::MakeConstSpan(stored).first(length);
    ASSERT_TRUE(absl::IsDataLoss(decoder.Decode(part, true, in.size(), absl::MakeSpan(out)))) << length;
  }
}

TEST(Codec, FramesOfAnyOtherShapeAreRefused) {
  PieceDecoder decoder;
  const Bytes plain(4000);
  Bytes out(plain.size());
  const auto decode = [&](const Bytes& stored) {
    return decoder.Decode(stored, true, out.size(), absl::MakeSpan(out));
  };
  const Bytes frame = ZstdFrame(plain);
  ASSERT_TRUE(decode(frame).ok());

  EXPECT_TRUE(absl::IsDataLoss(decode(ZstdFrame(Bytes(4004))))) << "larger than asked for";
  EXPECT_TRUE(absl::IsDataLoss(decode(ZstdFrame(Bytes(3996)))));
  EXPECT_TRUE(absl::IsDataLoss(decode(ZstdFrame(Bytes(size_t{1} << 26))))) << "a bomb";
  EXPECT_TRUE(absl::IsDataLoss(decode(ZstdFrame(plain, /*with_size=*/false))));

  Bytes with_tail = frame;
  with_tail.push_back(std::byte{0});
  EXPECT_TRUE(absl::IsDataLoss(decode(with_tail)));
  Bytes twice = frame;
  twice.insert(twice.end(), frame.begin(), frame.end());
  EXPECT_TRUE(absl::IsDataLoss(decode(twice)));

  // A header that promises 4,000 bytes before contents of 64 MiB.
  const Bytes liar = ZstdFrame(Bytes(size_t{1} << 26));
  Bytes forged = {frame.begin(), frame.begin() + 7};           // magic, descriptor, 2 bytes of size
  forged.insert(forged.end(), liar.begin() + 10, liar.end());  // 4 magic, descriptor, window, 4 size
  ASSERT_EQ(ZSTD_getFrameContentSize(forged.data(), forged.size()), out.size());
  EXPECT_TRUE(absl::IsDataLoss(decode(forged)));

  const unsigned char skippable[] = {0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0};
  Bytes skipped(sizeof skippable);
  std::memcpy(skipped.data(), skippable, sizeof skippable);
  EXPECT_TRUE(absl::IsDataLoss(decode(skipped)));
  Bytes followed = frame;
  followed.insert(followed.end(), skipped.begin(), skipped.end());
  EXPECT_TRUE(absl::IsDataLoss(decode(followed))) << "zstd itself would take it";
  skipped.insert(skipped.end(), frame.begin(), frame.end());
  EXPECT_TRUE(absl::IsDataLoss(decode(skipped)));
}

TEST(Codec, NothingIsAllocatedForImpossibleSizes) {
  PieceDecoder decoder;
  const Bytes frame = ZstdFrame(Bytes(size_t{128} << 20));
  std::byte out[4];
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(frame, true, size_t{128} << 20, out)));
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(frame, true, ~size_t{0}, out)));
  EXPECT_TRUE(absl::IsDataLoss(decoder.Decode(ZstdFrame(Bytes(5)), true, 5, out)));
}

}  // namespace
}  // namespace holdfast
