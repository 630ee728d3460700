#include "checkpoint/sharded/hdf5_filter.h"

#include <zstd.h>

#include <cstdlib>

#include "checkpoint/sharded/codec.h"

namespace holdfast {
namespace {

// What both directions end with: the library's buffer is replaced by `result`. 0, for the library, is failure.
size_t Replace(void* result, size_t size, size_t capacity, size_t* buffer_size, void** buffer) {
  if (ZSTD_isError(size)) {
    std::free(result);
    return 0;
  }
  std::free(*buffer);
  *buffer = result;
  *buffer_size = capacity;
  return size;
}

size_t Decompress(size_t size, size_t* buffer_size, void** buffer) {
  const unsigned long long content = ZSTD_getFrameContentSize(*buffer, size);
  if (content == 0 || content > kMaxPieceBytes) return 0;  // also what it says of something that is no frame
  void* result = std::malloc(content);
  if (result == nullptr) return 0;
  return Replace(result, ZSTD_decompress(result, content, *buffer, size), content, buffer_size, buffer);
}

size_t Compress(int level, size_t size, size_t* buffer_size, void** buffer) {
  const size_t capacity = ZSTD_compressBound(size);
  void* result = std::malloc(capacity);
  if (result == nullptr) return 0;
  return Replace(result, ZSTD_compress(result, capacity, *buffer, size, level), capacity, buffer_size, buffer);
}

// The library allocates and frees these buffers with malloc and free.
size_t Filter(unsigned flags, size_t values_count, const unsigned values[], size_t size, size_t* buffer_size,
              void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) != 0) return Decompress(size, buffer_size, buffer);
  return Compress(values_count > 0 ? static_cast<int>(values[0]) : 1, size, buffer_size, buffer);
}

}  // namespace

herr_t RegisterZstdFilter() {
  static constexpr H5Z_class2_t kClass{.version = H5Z_CLASS_T_VERS,
                                       .id = kZstdFilter,
                                       .encoder_present = 1,
                                       .decoder_present = 1,
                                       .name = "zstd",
                                       .can_apply = nullptr,
                                       .set_local = nullptr,
                                       .filter = Filter};
  static const herr_t registered = H5Zregister(&kClass);
  return registered;
}

}  // namespace holdfast
