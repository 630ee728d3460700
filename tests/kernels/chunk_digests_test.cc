// Proves that digests of chunks are those of the library: of every length that XXH3 treats in a way of its own, with
// any number of planes, aligned or not, and of more chunks than one.

#define XXH_INLINE_ALL
#include "tests/kernels/kernel_test_util.h"
#include "xxhash.h"

namespace holdfast::kernels {
namespace {

/// `shift`: values before each plane, so that no wide access may begin there.
void Check(int64_t n, int64_t chunk, int num_planes, int64_t shift) {
  SCOPED_TRACE(testing::Message() << n << " in chunks of " << chunk << ", " << num_planes << " planes, from " << shift);
  Rng rng(5);
  std::vector<std::vector<float>> planes;
  ChunkDigestsArgs args{.num_planes = num_planes, .n = n, .chunk = chunk};
  for (int plane = 0; plane < num_planes; ++plane) {
    planes.push_back(RandomVector(rng, n + shift));
    args.planes[static_cast<size_t>(plane)] = planes.back().data() + shift;
  }
  const int64_t chunks = (n + chunk - 1) / chunk;
  std::vector<uint64_t> digests(static_cast<size_t>(chunks) + 1, 42);
  args.digests = digests.data();
  TestOps ops(2);
  ops->ChunkDigests(args);
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t first = i * chunk, elements = std::min(chunk, n - first);
    std::vector<float> bytes;
    for (const std::vector<float>& plane : planes) {
      bytes.insert(bytes.end(), plane.begin() + shift + first, plane.begin() + shift + first + elements);
    }
    ASSERT_EQ(digests[static_cast<size_t>(i)], XXH3_64bits(bytes.data(), bytes.size() * sizeof(float))) << i;
  }
  EXPECT_EQ(digests.back(), 42u);
}

TEST(ChunkDigests, AreThoseOfTheLibraryForEveryLength) {
  for (int64_t n = 1; n <= 80; ++n) Check(n, n, 1, n % 4);
  for (const int64_t n : {127, 128, 255, 256, 257, 271, 272, 273, 512, 513, 1000, 4095, 4096, 4097, 20000}) {
    Check(n, n, 1, 0);
  }
}

TEST(ChunkDigests, TakeOnePlaneAfterTheOther) {
  for (int num_planes = 1; num_planes <= static_cast<int>(kMaxDigestPlanes); ++num_planes) {
    for (const int64_t n : {1, 3, 15, 63, 64, 1024, 1036, 1111}) {
      Check(n, n, num_planes, 0);
      Check(n, n, num_planes, 1);
    }
  }
}

TEST(ChunkDigests, OfManyChunksTheLastOneIsShorter) {
  Check(5, 1, 3, 0);
  Check(1000, 64, 3, 0);
  Check(4 * 1024 + 12, 1024, 3, 0);
  Check(4 * 1024 + 11, 1024, 2, 0);
  Check(2 * 65280 + 768 * 7, 65280, 3, 0);
  Check(0, 64, 3, 0);
}

}  // namespace
}  // namespace holdfast::kernels
