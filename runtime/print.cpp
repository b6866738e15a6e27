#include <algorithm>
#include <cmath>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

constexpr std::int64_t kSummaryThreshold = 1000;
constexpr std::int64_t kEdgeItems = 3;

// Chooses one format for all numbers, as torch does: integers with a dot, four decimals, or
// exponents when the magnitudes spread too far.
class NumberFormat {
 public:
  NumberFormat(const std::vector<float>& values, bool integers) : integers_(integers) {
    double largest = 0.0;
    double smallest = 0.0;
    bool whole = true;
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      const double magnitude = std::abs(static_cast<double>(value));
      whole = whole && std::floor(magnitude) == magnitude;
      if (magnitude == 0.0) continue;
      largest = std::max(largest, magnitude);
      smallest = smallest == 0.0 ? magnitude : std::min(smallest, magnitude);
    }
    whole_ = whole && largest < 1.0e8;
    scientific_ = !integers_ && !whole_ &&
                  (largest >= 1.0e8 || smallest < 1.0e-4 || largest / smallest > 1000.0);
    scientific_ = scientific_ || (!integers_ && whole && largest >= 1.0e8);
    for (const float value : values) width_ = std::max(width_, text(value).size());
  }

  std::string text(float value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    if (integers_) return fmt::format("{:.0f}", value);
    if (scientific_) return fmt::format("{:.4e}", value);
    if (whole_) return fmt::format("{:.0f}.", value);
    return fmt::format("{:.4f}", value);
  }
  std::string padded(float value) const { return fmt::format("{:>{}}", text(value), width_); }

 private:
  bool integers_ = false;
  bool whole_ = false;
  bool scientific_ = false;
  std::size_t width_ = 0;
};

// Only the values that are shown, each found by its index.
struct Printer {
  const Tensor& tensor;
  const std::vector<float>& values;
  const NumberFormat& format;
  bool summarize;

  std::string block(std::size_t d, std::int64_t begin, std::int64_t numel, int indent) const {
    const std::int64_t size = tensor.sizes()[d];
    const std::int64_t step = size == 0 ? 0 : numel / size;
    const bool last = d + 1 == tensor.sizes().size();
    const bool cut = summarize && size > 2 * kEdgeItems;
    std::string separator = last ? ", " : ",";
    if (!last) {
      separator += std::string(tensor.sizes().size() - d - 1, '\n');
      separator += std::string(static_cast<std::size_t>(indent) + 1, ' ');
    }
    std::string text = "[";
    bool first = true;
    for (std::int64_t i = 0; i < size; ++i) {
      if (cut && i == kEdgeItems) {
        text += separator + " ...";
        i = size - kEdgeItems;
      }
      if (!first) text += separator;
      first = false;
      const std::int64_t at = begin + i * step;
      text += last ? format.padded(values[static_cast<std::size_t>(at)])
                   : block(d + 1, at, step, indent + 1);
    }
    return text + "]";
  }
};

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "tensor(undefined)";
  const bool integers = !tensor.is_quantized() && !tensor.is_floating_point();
  const std::vector<float> values = tensor.to_float_vector();
  const bool summarize = tensor.numel() > kSummaryThreshold;
  const NumberFormat format(values, integers);
  constexpr int kIndent = 7;  // the length of "tensor("
  std::string text = "tensor(";
  if (tensor.dim() == 0) {
    text += format.text(values[0]);
  } else if (tensor.numel() == 0) {
    text += "[]";
  } else {
    text += Printer{tensor, values, format, summarize}.block(0, 0, tensor.numel(), kIndent);
  }
  if (tensor.is_quantized() || (tensor.numel() == 0 && tensor.dim() != 1)) {
    text += fmt::format(", size=({})", fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
  }
  const bool default_dtype = tensor.dtype() == DType::Float32 || tensor.dtype() == DType::Int64 ||
                             tensor.dtype() == DType::Bool;
  if (!default_dtype || tensor.numel() == 0) {
    text += fmt::format(", dtype=torch.{}", torch_name(tensor.dtype()));
  }
  if (tensor.is_quantized()) {
    const QTensor quantized(tensor);
    text += fmt::format(",\n       quantization_scheme=torch.{}", torch_name(quantized.qscheme()));
    if (quantized.is_per_channel()) {
      text += fmt::format(",\n       scale={},\n       zero_point={},\n       axis={}",
                          to_string(quantized.q_per_channel_scales()),
                          to_string(quantized.q_per_channel_zero_points()),
                          quantized.q_per_channel_axis());
    } else {
      text += fmt::format(", scale={}, zero_point={}", quantized.q_scale(), quantized.q_zero_point());
    }
  }
  return text + ")";
}

}  // namespace quanta
