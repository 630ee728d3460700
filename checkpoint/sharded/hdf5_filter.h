#pragma once
// zstd as a filter of the HDF5 library, under the number that The HDF Group has registered for it: so that this process
// can read compressed datasets through the library as well. Elsewhere hdf5plugin and other plugins bring it.

#include <hdf5.h>

namespace holdfast {

inline constexpr H5Z_filter_t kZstdFilter = 32015;

/// Whoever calls holds an Hdf5Lock (or is its constructor). Negative if the library refuses.
herr_t RegisterZstdFilter();

}  // namespace holdfast
