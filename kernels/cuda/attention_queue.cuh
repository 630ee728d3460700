#pragma once
// Queueing the kernels of attention, whose grids are one-dimensional: a block for each head and tile of queries or
// keys.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"

namespace holdfast::kernels {

/// What a kernel's block needs: `rows` of its tile, queries or keys.
struct AttentionBlock {
  int rows;
  unsigned threads;
  size_t shared_bytes;
};

template <typename T, class Sizes>
void QueueAttentionForward(CudaQueue& queue, const AttentionForwardCall& call, const AttentionBlock& block,
                           void (*kernel)(Rows<T>, float*, Rows<const T>, int, int, Sizes)) {
  const unsigned tiles = Blocks(call.sizes.sequence, block.rows);
  const int heads = call.batch * call.sizes.heads;
  Launch(queue, "AttentionForward",
         {.blocks = tiles * static_cast<unsigned>(heads), .threads = block.threads, .shared_bytes = block.shared_bytes},
         kernel, RowsOf<T>(call.out), call.lse, RowsOf<const T>(call.qkv), static_cast<int>(tiles), heads,
         static_cast<const Sizes&>(call.sizes));
}

/// `keys_kernel` makes the gradients of keys and values, `queries_kernel` those of queries.
template <typename T, class Sizes>
void QueueAttentionBackward(CudaQueue& queue, const AttentionBackwardCall& call, const AttentionBlock& keys_block,
                            void (*keys_kernel)(Rows<T>, Rows<const T>, Rows<const T>, AttentionStats, int, Sizes),
                            const AttentionBlock& queries_block,
                            void (*queries_kernel)(Rows<T>, Rows<const T>, Rows<const T>, AttentionStats, int, int,
                                                   Sizes)) {
  const auto d_qkv = RowsOf<T>(call.d_qkv);
  const auto d_out = RowsOf<const T>(call.d_out), qkv = RowsOf<const T>(call.qkv);
  const auto& sizes = static_cast<const Sizes&>(call.sizes);
  const auto grid = [](unsigned tiles, int heads, const AttentionBlock& block) {
    return Grid{
        .blocks = tiles * static_cast<unsigned>(heads), .threads = block.threads, .shared_bytes = block.shared_bytes};
  };
  const int key_heads = call.batch * call.sizes.kv_heads, query_heads = call.batch * call.sizes.heads;
  const unsigned key_tiles = Blocks(call.sizes.sequence, keys_block.rows);
  const unsigned query_tiles = Blocks(call.sizes.sequence, queries_block.rows);
  Launch(queue, "AttentionBackward", grid(key_tiles, key_heads, keys_block), keys_kernel, d_qkv, d_out, qkv, call.stats,
         key_heads, sizes);
  Launch(queue, "AttentionBackward", grid(query_tiles, query_heads, queries_block), queries_kernel, d_qkv, d_out, qkv,
         call.stats, static_cast<int>(query_tiles), query_heads, sizes);
}

/// Calls body(drops, sizes) with what the tensor core kernels are compiled for: drops.value is whether probabilities
/// are dropped, and sizes are of the type without documents where there are none.
template <typename Body>
void WithVariant(const PackedSizes& sizes, Body&& body) {
  WithFlag(sizes.drops, [&](auto drops) {
    if (sizes.documents.begin != nullptr) {
      body(drops, sizes);
    } else {
      body(drops, static_cast<const AttentionSizes&>(sizes));
    }
  });
}

}  // namespace holdfast::kernels
