#pragma once
// What the HDF5 library writes into: a file driver of our own instead of its POSIX driver, because
//   - it does not truncate the file when it opens it, so reserved space stays reserved;
//   - it says where a chunk went, which the library itself finds out only by walking over all chunks of a dataset;
//   - after an error it swallows what still comes, so that the library, which does not survive failed writes well,
//     closes the file as if all were fine; the error is kept here, with its errno;
//   - it has the disk begin to write early, on a thread of its own, so that the sync at the end finds little to do.
// The files are plain HDF5 files; any other driver reads them.
//
//   ASSIGN_OR_RETURN(auto sink, Hdf5Sink::Open(path));
//   const Hdf5Lock lock;
//   ASSIGN_OR_RETURN(Hdf5File file, sink->CreateFile(lock));
//   ... calls into the library ...
//   file.Reset();
//   RETURN_IF_ERROR(sink->Finish());

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/sharded/hdf5_library.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/task_thread.h"

namespace holdfast {

/// Must outlive the HDF5 file. Thread-safety: none.
class Hdf5Sink {
 public:
  /// An empty file that exists. Symbolic links are not followed.
  static absl::StatusOr<std::unique_ptr<Hdf5Sink>> Open(const std::string& path);
  ~Hdf5Sink();
  Hdf5Sink(const Hdf5Sink&) = delete;
  Hdf5Sink& operator=(const Hdf5Sink&) = delete;

  /// A new HDF5 file (format of library version 1.10) in it. Once per sink.
  absl::StatusOr<Hdf5File> CreateFile(const Hdf5Lock& lock);

  /// The first error of the operating system; OK if there was none. To be asked after every call into the library.
  const absl::Status& status() const { return status_; }
  /// Of the last write of raw data: a chunk.
  uint64_t last_offset() const { return last_offset_; }
  uint64_t last_size() const { return last_size_; }

  /// After the HDF5 file was closed: gives up reserved space behind its end. What status() says. The disk is still at
  /// work; destruction waits until it has taken everything.
  absl::Status Finish();
  int fd() const { return file_.get(); }

 private:
  friend struct Hdf5DriverCalls;

  Hdf5Sink(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  void Write(bool raw, uint64_t offset, const void* data, size_t bytes);
  void Read(uint64_t offset, void* data, size_t bytes);
  void Truncate(uint64_t bytes);
  void StartWriteBack(uint64_t end);
  void Fail(int error, const char* what);

  const FileDescriptor file_;
  std::string path_;
  absl::Status status_;
  uint64_t size_ = 0;  // as the library sees it
  uint64_t last_offset_ = 0, last_size_ = 0;
  uint64_t written_back_ = 0;  // up to here the disk was told to write
  TaskThread write_back_;      // telling it blocks when it is behind
};

}  // namespace holdfast
