// XXH3-64 of chunks (xxHash 0.8 with seed 0 and the default secret; its specification is doc/xxhash_spec.md of
// github.com/Cyan4973/xxHash).
//
// XXH3 adds stripes of 64 bytes to eight 64-bit sums, and scrambles those after every 16 stripes. What 16 stripes add
// does not depend on the sums: one kernel finds it for every such block, a warp each, and another goes through them.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kLanes = 8;  // 64-bit words of a stripe, and sums
constexpr int kStripeWords = 16, kBlockStripes = 16, kBlockWords = kStripeWords * kBlockStripes;  // of 32 bits
constexpr int kLongestShort = 240;                                                                // bytes

constexpr uint32_t kPrime32_1 = 0x9e3779b1u, kPrime32_2 = 0x85ebca77u, kPrime32_3 = 0xc2b2ae3du;
constexpr uint64_t kPrime64_1 = 0x9e3779b185ebca87u, kPrime64_2 = 0xc2b2ae3d27d4eb4fu, kPrime64_3 = 0x165667b19e3779f9u;
constexpr uint64_t kPrime64_4 = 0x85ebca77c2b2ae63u, kPrime64_5 = 0x27d4eb2f165667c5u;
constexpr uint64_t kAvalancheFactor = 0x165667919e3779f9u, kShortFactor = 0x9fb21c651e98df25u;

__constant__ uint64_t kFirstSums[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                            kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
__constant__ uint64_t kSecret[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb,
    0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088,
    0x4ef90da297486471, 0xd8acdea946ef1938, 0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
    0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};

/// Eight bytes of the secret from any.
__device__ __forceinline__ uint64_t SecretAt(int byte) {
  const int word = byte / 8, bits = byte % 8 * 8;
  return bits == 0 ? kSecret[word] : kSecret[word] >> bits | kSecret[word + 1] << (64 - bits);
}

/// A chunk's planes as one sequence of 32-bit words.
class ChunkWords {
 public:
  __device__ __forceinline__ ChunkWords(const ChunkDigestsArgs& args, int64_t chunk) : args_(args) {
    first_ = chunk * args.chunk;
    const int64_t rest = args.n - first_;
    elements_ = static_cast<uint32_t>(rest < args.chunk ? rest : args.chunk);
    words_ = elements_ * static_cast<uint32_t>(args.num_planes);
  }

  __device__ __forceinline__ uint32_t bytes() const { return words_ * 4; }
  /// Of 16 stripes that are followed by something.
  __device__ __forceinline__ uint32_t blocks() const { return (words_ - 1) / kBlockWords; }

  __device__ __forceinline__ uint32_t Word(uint32_t i) const { return __float_as_uint(*At(i)); }
  __device__ __forceinline__ uint64_t TwoWords(uint32_t i) const { return Word(i) | uint64_t{Word(i + 1)} << 32; }

  /// Words i .. i + 3, with i a multiple of 4. `whole`: they lie in one plane, where an access may begin.
  template <bool whole>
  __device__ __forceinline__ Values<float, 4> FourWords(uint32_t i) const {
    if constexpr (whole) return LoadPacket<true, 4>(At(i), 4);
    return {{Word(i), Word(i + 1), Word(i + 2), Word(i + 3)}};
  }

 private:
  __device__ __forceinline__ const float* At(uint32_t i) const {
    return args_.planes[i / elements_] + first_ + i % elements_;
  }

  const ChunkDigestsArgs& args_;
  int64_t first_;
  uint32_t elements_, words_;
};

/// What a word adds to its lane's sum; `other` is the word of the lane beside it, whose number differs in the last bit.
__device__ __forceinline__ uint64_t Added(uint64_t word, uint64_t other, uint64_t key) {
  const uint64_t keyed = word ^ key;
  return other + (keyed & 0xffffffffu) * (keyed >> 32);
}

__device__ __forceinline__ uint64_t FoldedProduct(uint64_t a, uint64_t b) { return a * b ^ __umul64hi(a, b); }

__device__ __forceinline__ uint64_t Avalanche(uint64_t x) {
  x ^= x >> 37;
  x *= kAvalancheFactor;
  return x ^ x >> 32;
}

constexpr int kSumThreads = 256, kSumWarps = kSumThreads / kWarpSize;
constexpr unsigned kSumParts = 16;  // blocks of threads that a chunk is given to

/// sums (chunks, blocks of a whole chunk, lanes).
template <bool whole>
__global__ void __launch_bounds__(kSumThreads)
    BlockSumsKernel(uint64_t* sums, const __grid_constant__ ChunkDigestsArgs args, int64_t stride) {
  const ChunkWords words(args, blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int of_stripe = lane % 4 * 2;  // the first of two XXH3 lanes, of stripe lane / 4 and the one eight further on
  uint64_t keys[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int k = 0; k < 2; ++k) keys[half][k] = kSecret[lane / 4 + half * 8 + of_stripe + k];
  }
  const uint32_t blocks = words.blocks();
  for (uint32_t block = blockIdx.y * kSumWarps + warp; block < blocks; block += kSumParts * kSumWarps) {
    uint64_t sum[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t first = block * kBlockWords + half * (kBlockWords / 2) + lane * 4;
      const Values<float, 4> in = words.template FourWords<whole>(first);
      const uint64_t a = in.words[0] | uint64_t{in.words[1]} << 32, b = in.words[2] | uint64_t{in.words[3]} << 32;
      sum[0] += Added(a, b, keys[half][0]);
      sum[1] += Added(b, a, keys[half][1]);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      for (int offset = 4; offset < kWarpSize; offset *= 2) sum[k] += __shfl_xor_sync(kWholeWarp, sum[k], offset);
    }
    uint64_t* const out = sums + (blockIdx.x * stride + block) * kLanes + of_stripe;
    if (lane < 4) out[0] = sum[0], out[1] = sum[1];
  }
}

/// Of 4 to 240 bytes, a multiple of 4.
__device__ uint64_t DigestOfShort(const ChunkWords& words) {
  const uint32_t bytes = words.bytes(), end = bytes / 4;
  const auto mixed = [&](uint32_t word, int secret) {
    return FoldedProduct(words.TwoWords(word) ^ SecretAt(secret), words.TwoWords(word + 2) ^ SecretAt(secret + 8));
  };
  if (bytes <= 8) {
    uint64_t x = (words.Word(end - 1) | uint64_t{words.Word(0)} << 32) ^ SecretAt(8) ^ SecretAt(16);
    x ^= (x << 49 | x >> 15) ^ (x << 24 | x >> 40);
    x *= kShortFactor;
    x ^= (x >> 35) + bytes;
    x *= kShortFactor;
    return x ^ x >> 28;
  }
  if (bytes <= 16) {
    const uint64_t low = words.TwoWords(0) ^ SecretAt(24) ^ SecretAt(32);
    const uint64_t high = words.TwoWords(end - 2) ^ SecretAt(40) ^ SecretAt(48);
    const auto swapped = [](uint32_t x) { return __byte_perm(x, 0, 0x0123); };
    const uint64_t reversed =
        uint64_t{swapped(static_cast<uint32_t>(low))} << 32 | swapped(static_cast<uint32_t>(low >> 32));
    return Avalanche(bytes + reversed + high + FoldedProduct(low, high));
  }
  uint64_t sum = bytes * kPrime64_1;
  if (bytes <= 128) {
    for (int i = static_cast<int>(bytes - 1) / 32; i >= 0; --i) {
      sum += mixed(i * 4, i * 32) + mixed(end - 4 * (i + 1), i * 32 + 16);
    }
    return Avalanche(sum);
  }
  for (int i = 0; i < 8; ++i) sum += mixed(i * 4, i * 16);
  sum = Avalanche(sum);
  for (int i = 8; i < static_cast<int>(bytes) / 16; ++i) sum += mixed(i * 4, (i - 8) * 16 + 3);
  return Avalanche(sum + mixed(end - 4, 136 - 17));
}

/// The sums of all lanes, from lane 0 to 7, as one digest.
__device__ __forceinline__ uint64_t Merged(uint64_t sum, int lane, uint32_t bytes) {
  const uint64_t other = __shfl_xor_sync(kWholeWarp, sum, 1);
  const int secret = 11 + lane / 2 * 16;
  uint64_t merged = FoldedProduct(sum ^ SecretAt(secret), other ^ SecretAt(secret + 8));  // of even lanes
  merged += __shfl_xor_sync(kWholeWarp, merged, 2);
  merged += __shfl_xor_sync(kWholeWarp, merged, 4);
  return Avalanche(merged + bytes * kPrime64_1);
}

// A warp does a chunk, eight threads a lane each; the others do the same once more.
__global__ void __launch_bounds__(kWarpSize)
    FinishDigestsKernel(const uint64_t* sums, const __grid_constant__ ChunkDigestsArgs args, int64_t stride) {
  constexpr int kAhead = 16;  // of the blocks' sums, loaded while as many are added
  const ChunkWords words(args, blockIdx.x);
  if (words.bytes() <= kLongestShort) {
    if (threadIdx.x == 0) args.digests[blockIdx.x] = DigestOfShort(words);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  uint64_t sum = kFirstSums[lane];

  const uint64_t scramble = kSecret[16 + lane];
  const uint32_t blocks = words.blocks();
  const uint64_t* const added = sums + blockIdx.x * stride * kLanes + lane;
  const auto load = [&](uint64_t(&values)[kAhead], uint32_t first) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) values[k] = first + k < blocks ? added[(first + k) * kLanes] : 0;
  };
  uint64_t next[kAhead];
  load(next, 0);
  for (uint32_t first = 0; first < blocks; first += kAhead) {
    uint64_t values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) values[k] = next[k];
    load(next, first + kAhead);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const uint64_t x = sum + values[k];
      if (first + k < blocks) sum = (x ^ x >> 47 ^ scramble) * kPrime32_1;
    }
  }

  const auto add = [&](uint32_t first_word, uint64_t key) {
    const uint64_t word = words.TwoWords(first_word + 2 * lane);
    sum += Added(word, __shfl_xor_sync(kWholeWarp, word, 1), key);
  };
  const uint32_t end = words.bytes() / 4;
  int stripe = 0;
  for (uint32_t first = blocks * kBlockWords; first + kStripeWords < end; first += kStripeWords, ++stripe) {
    add(first, kSecret[stripe + lane]);
  }
  add(end - kStripeWords, SecretAt(121 + 8 * lane));
  const uint64_t digest = Merged(sum, lane, words.bytes());
  if (threadIdx.x == 0) args.digests[blockIdx.x] = digest;
}

}  // namespace

void CudaOps::ChunkDigests(const ChunkDigestsArgs& args) {
  const unsigned chunks = Blocks(args.n, args.chunk);
  const int64_t words = std::min(args.n, args.chunk) * args.num_planes, blocks = (words - 1) / kBlockWords;
  uint64_t* sums = nullptr;
  if (chunks > 0 && blocks > 0) {
    sums = static_cast<uint64_t*>(queue_.Scratch(static_cast<size_t>(chunks * blocks) * kLanes * sizeof(uint64_t)));
    if (sums == nullptr) return;
    bool is_whole = args.chunk % 4 == 0 && args.n % 4 == 0;
    for (int plane = 0; plane < args.num_planes; ++plane) is_whole &= IsAligned<4>(OneRow(args.planes[plane]));
    WithFlag(is_whole, [&](auto whole) {
      Launch(queue_, "ChunkDigests", {.blocks = {chunks, kSumParts}, .threads = kSumThreads},
             BlockSumsKernel<whole.value>, sums, args, blocks);
    });
  }
  Launch(queue_, "ChunkDigests", {.blocks = chunks, .threads = kWarpSize}, FinishDigestsKernel, sums, args, blocks);
}

}  // namespace holdfast::kernels
