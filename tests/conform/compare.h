#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "suite.h"
#include "value.h"

namespace quanta::conform {

/// How outputs of an op are held against the reference, beside the case's own tolerance.
struct CompareRules {
  /// Scales of quantized outputs may differ by this share. Where parameters follow from float
  /// calculations (pipelines) the case's rtol counts if it is larger.
  double scale_rtol = 1e-6;
  /// Zero points of quantized outputs may differ by this much.
  std::int64_t zero_point_diff = 0;
  /// Suites of seeds/: min_exact is the share of elements within the tolerance, for floats too, and
  /// JSON numbers go by rtol and atol.
  bool share_within_tolerance = false;
};

/// The rules that the golden READMEs give for an op.
CompareRules rules_for(std::string_view op, const Tolerance& tolerance);

struct Comparison {
  bool passed = true;
  /// The first mismatch: leaf path, index, what was got and what was expected.
  std::string mismatch;
  /// Whether integers were compared, and the smallest share of equal ones among the leaves.
  bool has_integers = false;
  double exact_fraction = 1.0;
};

/// Holds `got` against `expected`. Every expected output has to be there; further outputs at the
/// top are ignored, but nested objects and lists have to have the same members.
Comparison compare(const Outputs& got, const Object& expected, const Tolerance& tolerance,
                   const CompareRules& rules);

}  // namespace quanta::conform
