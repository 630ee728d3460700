#pragma once
// The forms of scaling laws, as data, and their values and derivatives.
//
// A form is a sum of terms, each a coefficient times a product of powers, to an outer power p:
//
//   L = (sum over k of c_k phi_k)^p,   phi_k = N^-e_i (M/N)^-e_j D^-e_l
//
// with N the active parameters, M all of them, D the tokens. Given the exponents, L^(1/p) is linear in the c_k: that is
// what variable projection needs (fit.h).
//
// | form       | law                                    | from                                                     |
// |------------|----------------------------------------|----------------------------------------------------------|
// | chinchilla | E + A / N^a + B / D^b                  | Hoffmann et al. 2022, arXiv 2203.15556, equation 2       |
// | kaplan     | ((Nc / N)^(aN / aD) + Dc / D)^aD       | Kaplan et al. 2020, arXiv 2001.08361, equation 1.5       |
// | moe        | E + A / (N^a (M/N)^c) + B / D^b        | Wang et al. 2024, arXiv 2410.05661                       |
//
// In Wang et al. the number of experts stands where M/N does here: with experts that are not all of the model, or of
// which several are chosen, the ratio of parameters says how sparse a model is. A dense model has M/N = 1, and the form
// is then Chinchilla's.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/scaling/observation.h"

namespace holdfast {

enum class LawForm { kChinchilla, kKaplan, kMoe };

const char* NameOf(LawForm form);
absl::StatusOr<LawForm> LawFormNamed(absl::string_view name);

/// One term. An exponent is an index into the law's exponents, or one of:
inline constexpr int kNoFactor = -1, kPowerOne = -2;  // the factor is not there; its exponent is 1
struct LawTerm {
  int active = kNoFactor, ratio = kNoFactor, tokens = kNoFactor;
};

struct LawShape {
  std::vector<LawTerm> terms;  // at most kMaxTerms
  int exponents = 0;
  int outer = kNoFactor;  // the exponent that is the outer power
  const char* formula;

  int coefficients() const { return static_cast<int>(terms.size()); }
  int values() const { return coefficients() + exponents; }
};

inline constexpr int kMaxTerms = 3, kMaxExponents = 3, kMaxValues = kMaxTerms + kMaxExponents;

const LawShape& ShapeOf(LawForm form);

/// The logarithms that a law is a function of.
struct LogSize {
  double active = 0, ratio = 0, tokens = 0;

  LogSize() = default;
  explicit LogSize(const RunSize& size);
};

/// A form with its values, of which all coefficients are positive: they are kept as logarithms, so that no unit is too
/// large.
struct Law {
  LawForm form = LawForm::kChinchilla;
  std::vector<double> log_coefficients, exponents;  // as many as the form has

  double LogLoss(const LogSize& size) const;
  /// The same; writes the derivatives by all log coefficients, then by all exponents.
  double LogLoss(const LogSize& size, std::array<double, kMaxValues>* gradient) const;
  double Loss(const RunSize& size) const;
};

struct NamedValue {
  const char* name;
  double value;
};

/// The values as the paper names them: E, A, B, a, b; Nc, Dc, aN, aD; E, A, B, a, c, b.
std::vector<NamedValue> ValuesOf(const Law& law);
}  // namespace holdfast
