#pragma once
// Tells slow ranks from the time each computes per microbatch, without waiting for anybody.
//
// A rank's time is its median over the last `window` steps. It is a straggler if that exceeds `factor` times the median
// of the ranks (the lower one, so that of two ranks the quicker is the measure) and stands clear of the spread of the
// ranks (5 robust standard deviations); or if, against the ranks, it has become `factor` times slower than it used to
// be. It is one no more when it has come back half the way. Both must hold for several steps on end, and for a second
// of its computing: on a busy machine steps of some milliseconds are slow by dozens.
//
// A rank without microbatches shows no speed; what was known about it is believed for some windows, then forgotten, so
// that it is tried again.
//
// Thread-safety: none.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace holdfast {

/// The reason of one that is slow beside its own past and not, or not yet, by as much beside the others.
inline constexpr char kSlowerThanBefore[] = "slower than it used to be";

class StragglerDetector {
 public:
  StragglerDetector(double factor, int64_t window);

  struct Sample {
    std::string worker;
    double compute_seconds = 0;
    int64_t microbatches = 0;
  };
  struct Change {
    std::string worker;
    bool slow = false;      // false: resolved
    double factor = 0;      // against the median of the ranks
    double own_factor = 0;  // against its own past
    std::string reason;
  };

  /// One committed step; samples by rank. Workers that are not among them are forgotten.
  std::vector<Change> OnStep(const std::vector<Sample>& samples);

  /// Median seconds per microbatch over the window; 0 = not known.
  double SecondsOf(const std::string& worker) const;
  /// Against the median of the ranks; 0 = not known.
  double FactorOf(const std::string& worker) const;

 private:
  struct Track {
    std::deque<double> seconds;  // per microbatch, the last `window_`
    double median = 0;           // of `seconds`, once there is a window of them
    double ratio = 0;            // against the ranks
    double usual_ratio = 0;      // the same, long-time mean while it is no straggler
    int64_t idle_steps = 0;      // without microbatches
    int64_t streak = 0;          // steps on end that speak for a change
    double streak_seconds = 0;   // of computing in them
    double last_seconds = 0;     // of the last step
    bool slow = false;
  };

  void Add(const Sample& sample);
  void Measure();
  bool SpeaksForChange(const Track& track) const;

  double factor_;
  size_t window_;
  double median_ = 0, deviation_ = 0;  // of the ranks; the robust standard deviation
  std::map<std::string, Track> tracks_;
};

}  // namespace holdfast
