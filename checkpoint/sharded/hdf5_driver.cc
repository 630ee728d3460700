#include "checkpoint/sharded/hdf5_driver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr uint64_t kWriteBackBytes = uint64_t{16} << 20;
constexpr size_t kMetadataBlockBytes = size_t{32} << 10;  // metadata lies together, not between the chunks

struct DriverFile {
  H5FD_t base;  // first: the library knows only this
  Hdf5Sink* sink;
  haddr_t end_of_addresses;
};

struct DriverInfo {
  Hdf5Sink* sink;
};

DriverFile* Cast(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* Cast(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

}  // namespace

// The callbacks of the driver. The library opens a file twice to create it; the sink does not mind.
struct Hdf5DriverCalls {
  static H5FD_t* Open(const char* /*name*/, unsigned /*flags*/, hid_t properties, haddr_t /*max*/) {
    const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(properties));
    return info == nullptr ? nullptr : &(new DriverFile{.base = {}, .sink = info->sink, .end_of_addresses = 0})->base;
  }
  static herr_t Close(H5FD_t* file) {
    delete Cast(file);
    return 0;
  }
  static int Compare(const H5FD_t* a, const H5FD_t* b) {
    const Hdf5Sink *first = Cast(a)->sink, *second = Cast(b)->sink;
    return std::less<>()(first, second) ? -1 : std::less<>()(second, first) ? 1 : 0;
  }
  static herr_t Query(const H5FD_t* /*file*/, unsigned long* flags) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA |
             H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
  }
  static haddr_t GetEndOfAddresses(const H5FD_t* file, H5FD_mem_t /*type*/) { return Cast(file)->end_of_addresses; }
  static herr_t SetEndOfAddresses(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t end) {
    Cast(file)->end_of_addresses = end;
    return 0;
  }
  static haddr_t GetEndOfFile(const H5FD_t* file, H5FD_mem_t /*type*/) { return Cast(file)->sink->size_; }
  static herr_t Read(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t offset, size_t bytes, void* data) {
    Cast(file)->sink->Read(offset, data, bytes);
    return 0;
  }
  static herr_t Write(H5FD_t* file, H5FD_mem_t type, hid_t /*transfer*/, haddr_t offset, size_t bytes,
                      const void* data) {
    Cast(file)->sink->Write(type == H5FD_MEM_DRAW, offset, data, bytes);
    return 0;
  }
  static herr_t Truncate(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
    Cast(file)->sink->Truncate(Cast(file)->end_of_addresses);
    return 0;
  }
  static hid_t Register();
};

hid_t Hdf5DriverCalls::Register() {
  static const H5FD_class_t driver_class = [] {
    H5FD_class_t result{};
    result.name = "holdfast";
    result.maxaddr = (haddr_t{1} << 62) - 1;
    result.fc_degree = H5F_CLOSE_STRONG;  // closing the file closes what is still open in it
    result.fapl_size = sizeof(DriverInfo);
    result.open = Open;
    result.close = Close;
    result.cmp = Compare;
    result.query = Query;
    result.get_eoa = GetEndOfAddresses;
    result.set_eoa = SetEndOfAddresses;
    result.get_eof = GetEndOfFile;
    result.read = Read;
    result.write = Write;
    result.truncate = Truncate;
    constexpr H5FD_mem_t kFreeLists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kFreeLists), std::end(kFreeLists), result.fl_map);
    return result;
  }();
  static const hid_t driver = H5FDregister(&driver_class);
  return driver;
}

absl::StatusOr<std::unique_ptr<Hdf5Sink>> Hdf5Sink::Open(const std::string& path) {
  FileDescriptor file = OpenFile(path, O_RDWR | O_NOFOLLOW);
  if (!file.ok()) return ErrnoToStatus(errno, path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoToStatus(errno, path);
  if (info.st_size != 0) return absl::FailedPreconditionError(absl::StrCat(path, ": not empty"));
  return absl::WrapUnique(new Hdf5Sink(std::move(file), path));
}

Hdf5Sink::~Hdf5Sink() { write_back_.Drain(); }

absl::StatusOr<Hdf5File> Hdf5Sink::CreateFile(const Hdf5Lock& lock) {
  const Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS)), creation = TimelessProperties(H5P_FILE_CREATE);
  const DriverInfo info{.sink = this};
  if (!access.valid() || !creation.valid() || H5Pset_driver(access.get(), Hdf5DriverCalls::Register(), &info) < 0 ||
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
      H5Pset_meta_block_size(access.get(), kMetadataBlockBytes) < 0) {
    return lock.Error(absl::StrCat(path_, ": preparing the file"));
  }
  Hdf5File file(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
  if (!file.valid()) return lock.Error(absl::StrCat(path_, ": creating the file"));
  RETURN_IF_ERROR(status_);
  return file;
}

void Hdf5Sink::Fail(int error, const char* what) {
  if (status_.ok()) status_ = ErrnoToStatus(error, absl::StrCat(path_, ": ", what));
}

void Hdf5Sink::Write(bool raw, uint64_t offset, const void* data, size_t bytes) {
  if (raw) {
    last_offset_ = offset;
    last_size_ = bytes;
  }
  if (status_.ok()) status_ = WriteAllAt(fd(), offset, {static_cast<const char*>(data), bytes}, path_);
  size_ = std::max(size_, offset + bytes);
  if (raw) StartWriteBack(offset);
}

// Everything before `end` that is a chunk is there: chunks lie in the file in the order in which they are written.
void Hdf5Sink::StartWriteBack(uint64_t end) {
  if (end < written_back_ + kWriteBackBytes || !status_.ok()) return;
  // A hint: file systems that do not know it lose nothing but time at the end.
  write_back_.Post([this, begin = static_cast<off_t>(written_back_), bytes = static_cast<off_t>(end - written_back_)] {
    sync_file_range(fd(), begin, bytes, SYNC_FILE_RANGE_WRITE);
  });
  written_back_ = end;
}

void Hdf5Sink::Read(uint64_t offset, void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0 && status_.ok()) {
    const ssize_t got = RetryInterrupted([&] { return pread(fd(), to, bytes, static_cast<off_t>(offset)); });
    if (got < 0) Fail(errno, "read");
    if (got <= 0) break;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  std::memset(to, 0, bytes);  // what was never written reads as zeros, as from a file with a hole
}

void Hdf5Sink::Truncate(uint64_t bytes) {
  if (bytes == size_ || !status_.ok()) return;
  if (ftruncate(fd(), static_cast<off_t>(bytes)) != 0) return Fail(errno, "truncate");
  size_ = bytes;
}

absl::Status Hdf5Sink::Finish() {
  // Also where the size is right already: this is what frees blocks that were reserved beyond the end.
  if (status_.ok() && ftruncate(fd(), static_cast<off_t>(size_)) != 0) Fail(errno, "truncate");
  StartWriteBack(size_ + kWriteBackBytes);
  return status_;
}

}  // namespace holdfast
