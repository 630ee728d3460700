#include "checkpoint/sharded/hdf5_library.h"

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/hdf5_filter.h"

namespace holdfast {
namespace {

std::mutex& LibraryMutex() {
  static std::mutex mutex;
  return mutex;
}

// Called from the outermost function inwards: keeps the last, which is where it began.
herr_t KeepInnermost(unsigned /*depth*/, const H5E_error2_t* error, void* message) {
  *static_cast<std::string*>(message) = absl::StrCat(error->func_name == nullptr ? "?" : error->func_name, ": ",
                                                     error->desc == nullptr ? "" : error->desc);
  return 0;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(LibraryMutex()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  RegisterZstdFilter();
}

Hdf5Lock::~Hdf5Lock() {
  H5Eclear2(H5E_DEFAULT);
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
}

absl::Status Hdf5Lock::Error(const std::string& doing) const {
  std::string message = "unknown error";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, KeepInnermost, &message);
  H5Eclear2(H5E_DEFAULT);
  return absl::InternalError(absl::StrCat(doing, ": HDF5: ", message));
}

Hdf5Properties TimelessProperties(hid_t kind) {
  Hdf5Properties properties(H5Pcreate(kind));
  if (!properties.valid() || H5Pset_obj_track_times(properties.get(), false) < 0) return {};
  return properties;
}

absl::StatusOr<Hdf5Group> CreateGroup(const Hdf5Lock& lock, hid_t parent, const std::string& name) {
  const Hdf5Properties creation = TimelessProperties(H5P_GROUP_CREATE);
  if (!creation.valid()) return lock.Error("properties of a group");
  Hdf5Group group(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!group.valid()) return lock.Error(absl::StrCat("creating group ", name));
  return group;
}

}  // namespace holdfast
