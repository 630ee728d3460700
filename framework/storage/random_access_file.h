#pragma once
// One file, or one object of a storage, that is open and read in ranges: the same bytes from the first read to the
// last. What is replaced meanwhile is not seen, or an error; never a mixture (tests/framework/storage/
// random_access_conformance.h).
//
//   ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file, OpenLocalFile("/data/train.bin"));
//   RETURN_IF_ERROR(file->ReadAt(1024, out));

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

/// Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  /// For messages: "/data/train.bin", "s3://bucket/train.bin".
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;
  /// Fills `out` from byte `offset` on. DataLoss: the file ends before, or is another one by now. Unavailable: it
  /// cannot be read at present. Messages name file and offset.
  virtual absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const = 0;
  /// The same. Where it may take minutes (a server that does not answer) it is Cancelled soon after `stop` is
  /// requested.
  virtual absl::Status ReadUnlessStopped(uint64_t offset, absl::Span<std::byte> out,
                                         const std::stop_token& /*stop*/) const {
    return ReadAt(offset, out);
  }

  /// How many ranges should be read at the same time for the file to be fast: many where each is a request to a server.
  virtual int reads_at_once() const { return 1; }
};

/// Any regular file, also by way of links. It stays open; one that others cut short is DataLoss when the lost part is
/// read (a memory map would end the process).
absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenLocalFile(const std::string& path);

/// The whole file, of at most `max_bytes`; InvalidArgument if it is larger.
absl::StatusOr<std::string> ReadWhole(const RandomAccessFile& file, uint64_t max_bytes);

}  // namespace holdfast
