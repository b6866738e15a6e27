#include "compare.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace quanta::conform {
namespace {

/// Leaves "scale" and "zero_point" are compared by value: torch holds them with shape [] or [1] and
/// in different integer widths, or as a plain number.
bool is_qparam(std::string_view path) {
  return path.ends_with("scale") || path.ends_with("zero_point");
}

std::string index_text(std::int64_t position, const Dims& sizes) {
  Dims index = sizes;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    index[d] = position % sizes[d];
    position /= sizes[d];
  }
  return to_string(index);
}

std::vector<double> float_values(const Tensor& tensor) {
  if (tensor.dtype() == DType::Float64) {
    const Tensor values = tensor.contiguous();
    const double* begin = values.data<double>();
    return {begin, begin + values.numel()};
  }
  const std::vector<float> values = tensor.to_float_vector();
  return {values.begin(), values.end()};
}

/// Integers, codes of quantized tensors, or 0 and 1.
std::vector<std::int64_t> integer_values(const Tensor& tensor) {
  if (tensor.dtype() == DType::Bool) {
    const Tensor values = tensor.contiguous();
    const bool* begin = values.data<bool>();
    return {begin, begin + values.numel()};
  }
  return tensor.to_int64_vector();
}

bool within(double got, double want, double rtol, double atol) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= atol + rtol * std::fabs(want);
}

bool within_diff(std::int64_t got, std::int64_t want, std::int64_t allowed) {
  const auto low = static_cast<std::uint64_t>(std::min(got, want));
  const auto high = static_cast<std::uint64_t>(std::max(got, want));
  return high - low <= static_cast<std::uint64_t>(allowed);
}

double share(std::int64_t part, std::int64_t total) {
  return total == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(total);
}

// min_exact is printed with six digits: 119 of 120 equal elements stand there as 0.991667.
constexpr double kPrintedHalfUnit = 5e-7;

bool reaches(double got, double wanted) { return got >= wanted - kPrintedHalfUnit; }

/// Walks both trees and keeps the first mismatch.
class Comparer {
 public:
  Comparer(const Tolerance& tolerance, const CompareRules& rules)
      : tolerance_(tolerance), rules_(rules) {}

  void value(const std::string& path, const Value& got, const Value& want) {
    if (!result_.passed) return;
    if (const Object* object = want.get_if<Object>()) return members(path, got, *object);
    if (const List* list = want.get_if<List>()) return items(path, got, *list);
    if (const Tensor* tensor = want.get_if<Tensor>()) return tensor_leaf(path, got, *tensor);
    plain_leaf(path, got, want);
  }

  void fail(const std::string& path, const std::string& text) {
    if (!result_.passed) return;
    result_.passed = false;
    result_.mismatch = path.empty() ? text : fmt::format("{}: {}", path, text);
  }

  Comparison take() { return std::move(result_); }

 private:
  void kind_mismatch(const std::string& path, const Value& got, const Value& want) {
    fail(path, fmt::format("got {}, expected {}", kind_of(got), kind_of(want)));
  }

  void members(const std::string& path, const Value& got, const Object& want) {
    const Object* object = got.get_if<Object>();
    if (object == nullptr) return kind_mismatch(path, got, want);
    for (const auto& [key, expected] : want.items) {
      const std::string below = fmt::format("{}.{}", path, key);
      const Value* member = object->find(key);
      if (member == nullptr) return fail(below, "missing");
      value(below, *member, expected);
    }
    for (const auto& [key, ignored] : object->items) {
      if (want.find(key) == nullptr) return fail(fmt::format("{}.{}", path, key), "not expected");
    }
  }

  void items(const std::string& path, const Value& got, const List& want) {
    const List* list = got.get_if<List>();
    if (list == nullptr) return kind_mismatch(path, got, want);
    if (list->size() != want.size()) {
      return fail(path, fmt::format("got {} items, expected {}", list->size(), want.size()));
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      value(fmt::format("{}[{}]", path, i), (*list)[i], want[i]);
    }
  }

  void plain_leaf(const std::string& path, const Value& got, const Value& want) {
    if (const auto* text = want.get_if<std::string>()) {
      const auto* other = got.get_if<std::string>();
      if (other == nullptr) return kind_mismatch(path, got, want);
      if (*other != *text) fail(path, fmt::format("got '{}', expected '{}'", *other, *text));
      return;
    }
    if (const bool* flag = want.get_if<bool>()) {
      const bool* other = got.get_if<bool>();
      if (other == nullptr) return kind_mismatch(path, got, want);
      if (*other != *flag) fail(path, fmt::format("got {}, expected {}", *other, *flag));
      return;
    }
    if (want.is_null()) {
      if (!got.is_null()) kind_mismatch(path, got, want);
      return;
    }
    number_leaf(path, got, want);
  }

  void number_leaf(const std::string& path, const Value& got, const Value& want) {
    const Value scalar = scalar_of(path, got);
    const auto* whole = scalar.get_if<std::int64_t>();
    const auto* real = scalar.get_if<double>();
    const auto* expected = want.get_if<std::int64_t>();
    if (whole == nullptr && real == nullptr) return kind_mismatch(path, got, want);
    if (whole != nullptr && expected != nullptr && !rules_.share_within_tolerance) {
      return integers(path, {*whole}, {*expected}, {});
    }
    floats(path, {whole != nullptr ? static_cast<double>(*whole) : *real},
           {expected != nullptr ? static_cast<double>(*expected) : *want.get_if<double>()}, {});
  }

  /// A one-element scale or zero point as a number; everything else as it is.
  static Value scalar_of(const std::string& path, const Value& got) {
    const Tensor* tensor = got.get_if<Tensor>();
    if (tensor == nullptr || !is_qparam(path)) return got;
    if (!tensor->defined() || tensor->numel() != 1 || tensor->is_quantized()) return got;
    if (tensor->is_floating_point()) return float_values(*tensor)[0];
    return integer_values(*tensor)[0];
  }

  void tensor_leaf(const std::string& path, const Value& got, const Tensor& want) {
    if (is_qparam(path) && got.get_if<Tensor>() == nullptr) {
      const Value scalar = scalar_of(path, want);
      if (scalar.get_if<Tensor>() == nullptr) return number_leaf(path, got, scalar);
    }
    const Tensor* tensor = got.get_if<Tensor>();
    if (tensor == nullptr || !tensor->defined()) return kind_mismatch(path, got, want);
    if (!same_dtype(path, *tensor, want)) {
      return fail(path, fmt::format("got dtype {}, expected {}", to_string(tensor->dtype()),
                                    to_string(want.dtype())));
    }
    if (!same_sizes(path, *tensor, want)) {
      return fail(path, fmt::format("got shape {}, expected {}", to_string(tensor->sizes()),
                                    to_string(want.sizes())));
    }
    if (want.is_quantized()) qparams(path, QTensor(*tensor), QTensor(want));
    if (!result_.passed) return;
    if (want.is_floating_point()) {
      floats(path, float_values(*tensor), float_values(want), want.sizes());
    } else {
      integers(path, integer_values(*tensor), integer_values(want), want.sizes());
    }
  }

  static bool same_dtype(const std::string& path, const Tensor& got, const Tensor& want) {
    if (got.dtype() == want.dtype()) return true;
    const auto is_index = [](DType dtype) {
      return dtype == DType::Int32 || dtype == DType::Int64;
    };
    return path.ends_with("zero_point") && is_index(got.dtype()) && is_index(want.dtype());
  }

  static bool same_sizes(const std::string& path, const Tensor& got, const Tensor& want) {
    if (got.sizes() == want.sizes()) return true;
    return is_qparam(path) && got.numel() == 1 && want.numel() == 1 && got.dim() <= 1 &&
           want.dim() <= 1;
  }

  void qparams(const std::string& path, const QTensor& got, const QTensor& want) {
    if (got.qscheme() != want.qscheme()) {
      return fail(path, fmt::format("got qscheme {}, expected {}", to_string(got.qscheme()),
                                    to_string(want.qscheme())));
    }
    const Quantizer& mine = got.quantizer();
    const Quantizer& reference = want.quantizer();
    if (!got.is_per_channel()) {
      scale(path, "scale", mine.scale, reference.scale);
      zero_point(path, "zero_point", mine.zero_point, reference.zero_point);
      return;
    }
    if (mine.axis != reference.axis) {
      return fail(path, fmt::format("got axis {}, expected {}", mine.axis, reference.axis));
    }
    const ChannelQParams& channel = *mine.channel;
    const ChannelQParams& expected = *reference.channel;
    if (channel.scales.size() != expected.scales.size() ||
        channel.zero_points.size() != expected.zero_points.size() ||
        channel.float_zero_points.size() != expected.float_zero_points.size()) {
      return fail(path, fmt::format("got {} channels, expected {}", channel.scales.size(),
                                    expected.scales.size()));
    }
    for (std::size_t c = 0; c < expected.scales.size(); ++c) {
      scale(path, fmt::format("scales[{}]", c), channel.scales[c], expected.scales[c]);
    }
    for (std::size_t c = 0; c < expected.zero_points.size(); ++c) {
      zero_point(path, fmt::format("zero_points[{}]", c), channel.zero_points[c],
                 expected.zero_points[c]);
    }
    for (std::size_t c = 0; c < expected.float_zero_points.size(); ++c) {
      scale(path, fmt::format("zero_points[{}]", c),
            static_cast<double>(channel.float_zero_points[c]),
            static_cast<double>(expected.float_zero_points[c]));
    }
  }

  void scale(const std::string& path, const std::string& what, double got, double want) {
    if (!within(got, want, rules_.scale_rtol, 0.0)) {
      fail(path, fmt::format("{}: got {}, expected {}", what, got, want));
    }
  }

  void zero_point(const std::string& path, const std::string& what, std::int64_t got,
                  std::int64_t want) {
    if (!within_diff(got, want, rules_.zero_point_diff)) {
      fail(path, fmt::format("{}: got {}, expected {}", what, got, want));
    }
  }

  static std::string at(std::size_t i, const Dims& sizes) {
    return sizes.empty() ? std::string() : index_text(static_cast<std::int64_t>(i), sizes) + ": ";
  }

  void integers(const std::string& path, const std::vector<std::int64_t>& got,
                const std::vector<std::int64_t>& want, const Dims& sizes) {
    std::int64_t equal = 0;
    std::int64_t close = 0;
    std::optional<std::size_t> first_different;
    std::optional<std::size_t> first_far;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const bool is_close = within_diff(got[i], want[i], tolerance_.max_int_diff);
      equal += got[i] == want[i] ? 1 : 0;
      close += is_close ? 1 : 0;
      if (got[i] != want[i] && !first_different) first_different = i;
      if (!is_close && !first_far) first_far = i;
    }
    const auto total = static_cast<std::int64_t>(want.size());
    const double exact = share(equal, total);
    result_.has_integers = true;
    result_.exact_fraction = std::min(result_.exact_fraction, exact);
    const auto report = [&](std::size_t i, const std::string& why) {
      fail(path, fmt::format("{}got {}, expected {} ({})", at(i, sizes), got[i], want[i], why));
    };
    if (rules_.share_within_tolerance) {
      const double near = share(close, total);
      if (!reaches(near, tolerance_.min_exact)) {
        report(*first_far, fmt::format("within {}: {:.6f}, at least {:.6f} expected",
                                       tolerance_.max_int_diff, near, tolerance_.min_exact));
      }
      return;
    }
    if (first_far) {
      return report(*first_far, fmt::format("at most {} apart expected; {} of {} differ",
                                            tolerance_.max_int_diff, total - equal, total));
    }
    if (!reaches(exact, tolerance_.min_exact)) {
      report(*first_different,
             fmt::format("equal: {:.6f}, at least {:.6f} expected", exact, tolerance_.min_exact));
    }
  }

  void floats(const std::string& path, const std::vector<double>& got,
              const std::vector<double>& want, const Dims& sizes) {
    std::int64_t close = 0;
    std::optional<std::size_t> first_far;
    bool all_loose = true;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (within(got[i], want[i], tolerance_.rtol, tolerance_.atol)) {
        ++close;
        continue;
      }
      if (!first_far) first_far = i;
      const bool has_loose = tolerance_.loose_rtol >= 0.0 || tolerance_.loose_atol >= 0.0;
      all_loose =
          all_loose && (!has_loose || within(got[i], want[i], std::max(tolerance_.loose_rtol, 0.0),
                                             std::max(tolerance_.loose_atol, 0.0)));
    }
    if (!first_far) return;
    const auto total = static_cast<std::int64_t>(want.size());
    if (rules_.share_within_tolerance && all_loose &&
        reaches(share(close, total), tolerance_.min_exact)) {
      return;
    }
    const std::size_t i = *first_far;
    fail(path,
         fmt::format("{}got {}, expected {} (rtol {}, atol {}; {} of {} beyond)", at(i, sizes),
                     got[i], want[i], tolerance_.rtol, tolerance_.atol, total - close, total));
  }

  Tolerance tolerance_;
  CompareRules rules_;
  Comparison result_;
};

}  // namespace

CompareRules rules_for(std::string_view op, const Tolerance& tolerance) {
  CompareRules rules;
  if (op.ends_with("_pipeline") || op == "run_pt") {
    rules.scale_rtol = std::max(rules.scale_rtol, tolerance.rtol);
  }
  if (op == "qat_pipeline") rules.zero_point_diff = tolerance.max_int_diff;
  // Ops of seeds/ have their package's name in front: "modelopt.clip".
  rules.share_within_tolerance = op.find('.') != std::string_view::npos;
  return rules;
}

Comparison compare(const Outputs& got, const Object& expected, const Tolerance& tolerance,
                   const CompareRules& rules) {
  Comparer comparer(tolerance, rules);
  for (const auto& [name, want] : expected.items) {
    const Value* output = got.find(name);
    if (output == nullptr) {
      comparer.fail(name, "missing");
    } else {
      comparer.value(name, *output, want);
    }
  }
  return comparer.take();
}

}  // namespace quanta::conform
