#include "tests/bench/gpu/figures.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "framework/tensor/gpu_peaks.h"

namespace holdfast::kernels {
namespace {

struct Bandwidth {
  const char* gpu;
  double terabytes;  // a second
};

// NVIDIA's data sheets.
constexpr std::array kBandwidths = {
    Bandwidth{"NVIDIA A100-SXM4-40GB", 1.555}, Bandwidth{"NVIDIA A100-SXM4-80GB", 2.039},
    Bandwidth{"NVIDIA H100 80GB HBM3", 3.35},  Bandwidth{"NVIDIA H100 PCIe", 2.0},
    Bandwidth{"NVIDIA H100 NVL", 3.9},         Bandwidth{"NVIDIA H200", 4.8},
    Bandwidth{"NVIDIA H200 NVL", 4.8},
};

constexpr const char* kRowFormat = "%-62s %10s %14s %9s %7s %7s %9s\n";

std::string Percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }

std::string ExpectedOf(const KernelCase& c) {
  if (!c.expected.has_value()) return "-";
  return absl::StrFormat("%.0f-%.0f%%", 100 * c.expected->least, 100 * c.expected->most);
}

}  // namespace

DevicePeaks PeaksOf(const std::string& gpu) {
  const auto found =
      std::find_if(kBandwidths.begin(), kBandwidths.end(), [&](const Bandwidth& b) { return b.gpu == gpu; });
  return {PeakBf16Flops(gpu), found == kBandwidths.end() ? 0 : found->terabytes * 1e12};
}

Timing TimingOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t last = seconds.size() - 1;
  return {seconds[seconds.size() / 2], seconds[last / 10], seconds[last - last / 10], static_cast<int>(seconds.size())};
}

double FloorSeconds(const KernelCase& c, const DevicePeaks& peaks) {
  if (peaks.flops <= 0 || peaks.bytes_per_second <= 0) return 0;
  return std::max(c.flops / peaks.flops, c.bytes / peaks.bytes_per_second);
}

std::string TableHead() {
  return absl::StrFormat(kRowFormat, "case", "median us", "10%..90% us", "TFLOP/s", "TB/s", "of most", "expected");
}

std::string TableRow(const KernelCase& c, const Timing& timing, const DevicePeaks& peaks) {
  const double floor = FloorSeconds(c, peaks);
  return absl::StrFormat(kRowFormat, c.name, absl::StrFormat("%.1f", timing.median * 1e6),
                         absl::StrFormat("%.1f..%.1f", timing.low * 1e6, timing.high * 1e6),
                         c.flops > 0 ? absl::StrFormat("%.1f", c.flops / timing.median / 1e12) : "-",
                         absl::StrFormat("%.3f", c.bytes / timing.median / 1e12),
                         floor > 0 ? Percent(floor / timing.median) : "-", ExpectedOf(c));
}

std::string JsonLine(const KernelCase& c, const Timing& timing, const DevicePeaks& peaks, const std::string& device) {
  nlohmann::ordered_json line;
  line["case"] = c.name;
  line["device"] = device;
  line["calls"] = timing.calls;
  line["median_s"] = timing.median;
  line["low_s"] = timing.low;
  line["high_s"] = timing.high;
  line["flops"] = c.flops;
  line["bytes"] = c.bytes;
  const double floor = FloorSeconds(c, peaks);
  line["of_most"] = floor > 0 ? nlohmann::ordered_json(floor / timing.median) : nlohmann::ordered_json();
  if (c.expected.has_value()) line["expected"] = {c.expected->least, c.expected->most};
  return line.dump();
}

}  // namespace holdfast::kernels
