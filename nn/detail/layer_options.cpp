#include "quanta/nn/detail/layer_options.h"

#include "quanta/nn/skip_init.h"
#include "quanta/runtime/detail/lasting_memory.h"
#include "quanta/runtime/random.h"

namespace quanta::nn::detail {

Dims expand_spatial(std::string_view op, std::string_view argument, const Dims& dims,
                    std::int64_t spatial, std::int64_t min) {
  const auto count = static_cast<std::size_t>(spatial);
  QUANTA_CHECK(dims.size() == 1 || dims.size() == count, "{}: {}: expected 1 or {} numbers, got {}",
               op, argument, count, dims);
  for (const std::int64_t value : dims) {
    QUANTA_CHECK(value >= min, "{}: {}: expected at least {}, got {}", op, argument, min, dims);
  }
  return dims.size() == count ? dims : Dims::filled(count, dims[0]);
}

std::string python_tuple(const Dims& dims) {
  return fmt::format("({}{})", fmt::join(dims.begin(), dims.end(), ", "),
                     dims.size() == 1 ? "," : "");
}

std::string python_int_or_tuple(const Dims& dims) {
  return dims.size() == 1 ? fmt::format("{}", dims[0]) : python_tuple(dims);
}

std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string python_float(const std::optional<double>& value) {
  return value ? python_float(*value) : "None";
}

std::string_view python_bool(bool value) { return value ? "True" : "False"; }

namespace {

/// Zeros in the place of starting values.
Tensor without_values(const Dims& sizes) {
  // Those of a small tensor are written faster than they are looked after.
  constexpr std::int64_t kSmall = 1024;
  const std::int64_t count = checked_numel(sizes);
  if (count < kSmall) return Tensor::zeros(sizes);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  const std::shared_ptr<std::byte> memory = quanta::detail::lasting_zeros(bytes);
  return Tensor::from_blob(memory.get(), sizes, DType::Float32,
                           [owner = memory](void*) mutable { owner.reset(); });
}

}  // namespace

Tensor uniform(const Dims& sizes, double bound) {
  if (SkipInit::active()) return without_values(sizes);
  Tensor tensor = rand(sizes);
  auto* values = tensor.mutable_data<float>();
  const auto width = static_cast<float>(2.0 * bound);
  const auto low = static_cast<float>(-bound);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = low + width * values[i];
  return tensor;
}

Tensor normal(const Dims& sizes) {
  return SkipInit::active() ? without_values(sizes) : randn(sizes);
}

}  // namespace quanta::nn::detail
