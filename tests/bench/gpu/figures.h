#pragma once
// What was measured of a case, beside the most that the device could do: as a line of a table and as JSON.

#include <string>
#include <vector>

#include "tests/bench/gpu/kernel_cases.h"

namespace holdfast::kernels {

/// The most that a device could do, by its maker's data sheet; 0 = unknown.
struct DevicePeaks {
  double flops = 0;             ///< per second, of bf16 products
  double bytes_per_second = 0;  ///< of its memory
};
DevicePeaks PeaksOf(const std::string& gpu);

/// Seconds of one call.
struct Timing {
  double median = 0, low = 0, high = 0;  ///< low and high: a tenth of the calls took less, a tenth more
  int calls = 0;
};
/// `seconds` must not be empty.
Timing TimingOf(std::vector<double> seconds);

/// The least time that a case can take on a device, or 0 if that is unknown: of its operations or of its bytes,
/// whichever takes longer.
double FloorSeconds(const KernelCase& c, const DevicePeaks& peaks);

std::string TableHead();
std::string TableRow(const KernelCase& c, const Timing& timing, const DevicePeaks& peaks);
/// One line, without its end.
std::string JsonLine(const KernelCase& c, const Timing& timing, const DevicePeaks& peaks, const std::string& device);

}  // namespace holdfast::kernels
