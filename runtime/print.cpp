#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

// The text is torch's, down to where lines break: torch/_tensor_str.py with its default options.

namespace quanta {
namespace {

constexpr std::int64_t kSummaryThreshold = 1000;
constexpr std::int64_t kEdgeItems = 3;
constexpr std::size_t kLineWidth = 80;
constexpr std::size_t kIndent = 7;  // the length of "tensor("

bool is_cut(std::int64_t size) { return size > 2 * kEdgeItems; }

// The first and last items of every long dimension: all that a summary shows.
Tensor shown_part(const Tensor& x) {
  Dims shown = x.sizes();
  for (auto& size : shown) {
    if (is_cut(size)) size = 2 * kEdgeItems;
  }
  if (shown == x.sizes()) return x;
  Tensor result = Tensor::empty(shown, x.dtype());
  const auto copy = [&](const auto& self, const Tensor& from, const Tensor& to,
                        std::int64_t d) -> void {
    if (d == x.dim()) {
      to.copy_(from);
      return;
    }
    if (!is_cut(from.sizes()[static_cast<std::size_t>(d)])) {
      self(self, from, to, d + 1);
      return;
    }
    self(self, from.narrow(d, 0, kEdgeItems), to.narrow(d, 0, kEdgeItems), d + 1);
    self(self, from.narrow(d, -kEdgeItems, kEdgeItems), to.narrow(d, kEdgeItems, kEdgeItems),
         d + 1);
  };
  copy(copy, x, result, 0);
  return result;
}

// One format for all floating numbers of a tensor: integers with a dot, four decimals, or
// exponents when the magnitudes spread too far. Zeros, infinities and NaN have no say.
class FloatFormat {
 public:
  explicit FloatFormat(const std::vector<double>& values) {
    double largest = 0.0;
    double smallest = 0.0;
    for (const double value : values) {
      if (!counts(value)) continue;
      whole_ = whole_ && std::ceil(value) == value;
      const double magnitude = std::abs(value);
      largest = std::max(largest, magnitude);
      smallest = smallest == 0.0 ? magnitude : std::min(smallest, magnitude);
    }
    if (largest == 0.0) return;
    scientific_ = largest / smallest > 1000.0 || largest > 1.0e8 || (!whole_ && smallest < 1.0e-4);
    for (const double value : values) {
      if (counts(value)) width_ = std::max(width_, text(value).size());
    }
  }

  std::string text(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    if (scientific_) return fmt::format("{:.4e}", value);
    if (whole_) return fmt::format("{:.0f}.", value);
    return fmt::format("{:.4f}", value);
  }
  std::size_t width() const { return width_; }

 private:
  static bool counts(double value) { return std::isfinite(value) && value != 0.0; }

  bool whole_ = true;
  bool scientific_ = false;
  std::size_t width_ = 1;
};

// The texts of all elements in logical order, padded to one width.
std::vector<std::string> element_texts(const Tensor& x) {
  std::vector<std::string> texts;
  std::size_t width = 1;
  if (x.is_floating_point()) {
    const Tensor wide = x.to(DType::Float64).contiguous();
    const std::vector<double> values(wide.data<double>(), wide.data<double>() + wide.numel());
    const FloatFormat format(values);
    width = format.width();
    for (const double value : values) texts.push_back(format.text(value));
  } else {
    for (const std::int64_t value : x.to_int64_vector()) {
      texts.push_back(x.dtype() != DType::Bool ? fmt::format("{}", value)
                      : value != 0             ? "True"
                                               : "False");
      width = std::max(width, texts.back().size());
    }
  }
  if (x.dim() == 0) return texts;
  for (std::string& text : texts) text = fmt::format("{:>{}}", text, width);
  return texts;
}

// The elements of what is shown as nested lists.
struct Printer {
  const Dims& sizes;        // of the whole tensor
  const Dims& shown_sizes;  // of the part that `texts` holds
  const std::vector<std::string>& texts;
  bool summarize;

  std::string list(std::size_t d, std::size_t begin, std::size_t count, std::size_t indent) const {
    const auto size = static_cast<std::size_t>(shown_sizes[d]);
    const std::size_t step = count / size;
    const bool last = d + 1 == sizes.size();
    std::vector<std::string> items;
    for (std::size_t i = 0; i < size; ++i) {
      if (summarize && is_cut(sizes[d]) && i == kEdgeItems) items.push_back(last ? " ..." : "...");
      const std::size_t at = begin + i * step;
      items.push_back(last ? texts[at] : list(d + 1, at, step, indent + 1));
    }
    const std::string margin(indent + 1, ' ');
    if (!last) {
      const std::string breaks(sizes.size() - d - 1, '\n');
      return fmt::format("[{}]", fmt::join(items, "," + breaks + margin));
    }
    const std::size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
    const std::size_t per_line = std::max<std::size_t>(1, room / (texts[begin].size() + 2));
    std::string text = "[";
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += i % per_line == 0 ? ",\n" + margin : ", ";
      text += items[i];
    }
    return text + "]";
  }
};

std::string values_text(const Tensor& x) {
  if (x.numel() == 0) return "[]";
  const bool summarize = x.numel() > kSummaryThreshold;
  const Tensor shown = summarize ? shown_part(x) : x;
  const std::vector<std::string> texts = element_texts(shown);
  if (x.dim() == 0) return texts[0];
  return Printer{x.sizes(), shown.sizes(), texts, summarize}.list(0, 0, texts.size(), kIndent);
}

// Python's tuple: "(3,)".
std::string sizes_text(const Dims& sizes) {
  return fmt::format("({}{})", fmt::join(sizes.begin(), sizes.end(), ", "),
                     sizes.size() == 1 ? "," : "");
}

// Python's repr: "1.0" where fmt gives "1".
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// What follows the values, each part on a new line when the last line has no room for it.
std::string with_suffixes(std::string text, const std::vector<std::string>& suffixes) {
  const std::size_t last_break = text.rfind('\n');
  // torch counts one more than the line has.
  std::size_t length =
      last_break == std::string::npos ? text.size() + 2 : text.size() - last_break + 1;
  for (const std::string& suffix : suffixes) {
    if (length + suffix.size() + 2 > kLineWidth) {
      text += ",\n" + std::string(kIndent, ' ') + suffix;
      length = kIndent + suffix.size();
    } else {
      text += ", " + suffix;
      length += suffix.size() + 2;
    }
  }
  return text + ")";
}

std::vector<std::string> quantizer_texts(const QTensor& x) {
  std::vector<std::string> texts{"quantization_scheme=torch." +
                                 std::string(torch_name(x.qscheme()))};
  if (x.is_per_channel()) {
    texts.push_back("scale=" + to_string(x.q_per_channel_scales()));
    texts.push_back("zero_point=" + to_string(x.q_per_channel_zero_points()));
    texts.push_back(fmt::format("axis={}", x.q_per_channel_axis()));
  } else {
    texts.push_back("scale=" + number_text(x.q_scale()));
    texts.push_back(fmt::format("zero_point={}", x.q_zero_point()));
  }
  return texts;
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "tensor(undefined)";
  if (!tensor.device().is_cpu()) return to_string(tensor.cpu());
  const DType dtype = tensor.dtype();
  std::vector<std::string> suffixes;
  const std::string dtype_text = fmt::format("dtype=torch.{}", torch_name(dtype));
  if (tensor.is_quantized()) {
    suffixes = {"size=" + sizes_text(tensor.sizes()), dtype_text};
    for (std::string& text : quantizer_texts(QTensor(tensor))) suffixes.push_back(std::move(text));
    Tensor values = Tensor::empty(tensor.sizes());
    const std::vector<float> numbers = tensor.to_float_vector();
    std::copy(numbers.begin(), numbers.end(), values.mutable_data<float>());
    return with_suffixes("tensor(" + values_text(values), suffixes);
  }
  const bool empty = tensor.numel() == 0;
  if (empty && tensor.dim() != 1) suffixes.push_back("size=" + sizes_text(tensor.sizes()));
  // Of an empty tensor nothing but float is taken for granted.
  const bool implied =
      dtype == DType::Float32 || (!empty && (dtype == DType::Int64 || dtype == DType::Bool));
  if (!implied) suffixes.push_back(dtype_text);
  return with_suffixes("tensor(" + values_text(tensor), suffixes);
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}

}  // namespace quanta
