#include "quanta/nn/pooling.h"

#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/put_size.h"

namespace quanta::nn {
namespace {

// An absent stride is the kernel size, as in torch; written out so that it is printed.
template <typename Options>
Options checked(Options options, const std::string& op, std::int64_t spatial) {
  static_cast<void>(detail::expand_spatial(op, "kernel_size", options.kernel_size, spatial, 1));
  if (options.stride.empty()) options.stride = options.kernel_size;
  static_cast<void>(detail::expand_spatial(op, "stride", options.stride, spatial, 1));
  static_cast<void>(detail::expand_spatial(op, "padding", options.padding, spatial, 0));
  return options;
}

}  // namespace

MaxPoolOptions MaxPoolNd::with_kernel(const Dims& kernel_size, MaxPoolOptions more) {
  detail::put_size("MaxPool", "kernel_size", kernel_size, more.kernel_size);
  return more;
}

MaxPoolNd::MaxPoolNd(MaxPoolOptions options, std::int64_t spatial)
    : options_(checked(std::move(options), fmt::format("MaxPool{}d", spatial), spatial)) {
  static_cast<void>(detail::expand_spatial(fmt::format("MaxPool{}d", spatial), "dilation",
                                           options_.dilation, spatial, 1));
}

std::string MaxPoolNd::extra_repr() const {
  return fmt::format(
      "kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}",
      detail::python_int_or_tuple(options_.kernel_size),
      detail::python_int_or_tuple(options_.stride), detail::python_int_or_tuple(options_.padding),
      detail::python_int_or_tuple(options_.dilation), detail::python_bool(options_.ceil_mode));
}

AvgPoolOptions AvgPoolNd::with_kernel(const Dims& kernel_size, AvgPoolOptions more) {
  detail::put_size("AvgPool", "kernel_size", kernel_size, more.kernel_size);
  return more;
}

AvgPoolNd::AvgPoolNd(AvgPoolOptions options, std::int64_t spatial)
    : options_(checked(std::move(options), fmt::format("AvgPool{}d", spatial), spatial)) {
  QUANTA_CHECK(options_.divisor_override.value_or(1) != 0,
               "AvgPool{}d: divisor_override: expected a number other than 0, got 0", spatial);
}

std::string AvgPoolNd::extra_repr() const {
  return fmt::format(
      "kernel_size={}, stride={}, padding={}", detail::python_int_or_tuple(options_.kernel_size),
      detail::python_int_or_tuple(options_.stride), detail::python_int_or_tuple(options_.padding));
}

AdaptivePoolNd::AdaptivePoolNd(const Dims& output_size, std::int64_t spatial)
    : output_size_(output_size) {
  static_cast<void>(detail::expand_spatial(fmt::format("AdaptivePool{}d", spatial), "output_size",
                                           output_size, spatial, -1));
}

std::string AdaptivePoolNd::extra_repr() const {
  return "output_size=" + detail::python_int_or_tuple(output_size_);
}

}  // namespace quanta::nn
