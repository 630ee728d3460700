#pragma once
// The borders of the HDF5 library: its lock, its errors, its handles.
//
// The library has one state per process, so it gets the one process-wide object of this room: a mutex. Every call into
// the library, closing handles included, is made while an Hdf5Lock is alive. While it is, errors are not printed; a
// failed call becomes a status that says what the library said:
//
//   const Hdf5Lock lock;
//   const Hdf5Group group(H5Gcreate2(file, "weight", ...));
//   if (!group.valid()) return lock.Error("creating group weight");

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

class Hdf5Lock {
 public:
  Hdf5Lock();
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;

  /// Internal, "doing: what the library said", for the call that has just failed.
  absl::Status Error(const std::string& doing) const;

 private:
  std::scoped_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;  // how errors were reported before
  void* print_data_ = nullptr;
};

/// Owns an identifier; `Close` is the library's function for its kind.
template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Hdf5Handle() { Reset(); }

  bool valid() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  /// Negative if the library says that closing failed.
  herr_t Reset() { return id_ < 0 ? 0 : Close(std::exchange(id_, H5I_INVALID_HID)); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<H5Fclose>;
using Hdf5Group = Hdf5Handle<H5Gclose>;
using Hdf5Dataset = Hdf5Handle<H5Dclose>;
using Hdf5Space = Hdf5Handle<H5Sclose>;
using Hdf5Attribute = Hdf5Handle<H5Aclose>;
using Hdf5Properties = Hdf5Handle<H5Pclose>;

/// Properties for creating files, groups or datasets (`kind`: H5P_FILE_CREATE, ...) that store no times: the same state
/// gives the same bytes. Invalid if the library fails.
Hdf5Properties TimelessProperties(hid_t kind);

absl::StatusOr<Hdf5Group> CreateGroup(const Hdf5Lock& lock, hid_t parent, const std::string& name);

}  // namespace holdfast
