#include <map>
#include <string>

#include "quanta/ops/interpolate.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/shuffle.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using MaxPool = Tensor (*)(const Tensor&, const MaxPoolOptions&);
using AvgPool = Tensor (*)(const Tensor&, const AvgPoolOptions&);
using AdaptivePool = Tensor (*)(const Tensor&, const Dims&);

template <MaxPool op>
Outputs run_max_pool(const Case& test) {
  MaxPoolOptions options;
  options.kernel_size = test.dims("kernel_size");
  options.stride = test.dims("stride", options.stride);
  options.padding = test.dims("padding", options.padding);
  options.dilation = test.dims("dilation", options.dilation);
  options.ceil_mode = test.flag("ceil_mode", false);
  return single(op(test.x(), options));
}

template <AvgPool op>
Outputs run_avg_pool(const Case& test) {
  AvgPoolOptions options;
  options.kernel_size = test.dims("kernel_size");
  options.stride = test.dims("stride", options.stride);
  options.padding = test.dims("padding", options.padding);
  options.ceil_mode = test.flag("ceil_mode", false);
  options.count_include_pad = test.flag("count_include_pad", true);
  if (test.has_attr("divisor_override")) {
    options.divisor_override = test.integer("divisor_override");
  }
  return single(op(test.x(), options));
}

template <AdaptivePool op>
Outputs run_adaptive_pool(const Case& test) {
  return single(op(test.x(), test.dims("output_size")));
}

template <typename Mode>
Mode mode_from(const Case& test, const std::map<std::string, Mode>& modes, Mode otherwise) {
  if (!test.has_attr("mode")) return otherwise;
  const auto found = modes.find(test.text("mode"));
  if (found == modes.end()) {
    throw FormatError("attrs: mode: unknown value '" + test.text("mode") + "'");
  }
  return found->second;
}

Outputs run_interpolate(const Case& test) {
  InterpolateOptions options;
  options.size = test.dims("size", options.size);
  if (test.has_attr("scale_factor")) {
    const Json& factor = test.attr("scale_factor");
    if (factor.is_array()) {
      for (const Json& value : factor) options.scale_factor.push_back(value.get<double>());
    } else {
      options.scale_factor.push_back(factor.get<double>());
    }
  }
  options.mode = mode_from<InterpolateMode>(test,
                                            {{"nearest", InterpolateMode::Nearest},
                                             {"nearest-exact", InterpolateMode::NearestExact},
                                             {"linear", InterpolateMode::Linear},
                                             {"bilinear", InterpolateMode::Bilinear},
                                             {"trilinear", InterpolateMode::Trilinear}},
                                            InterpolateMode::Nearest);
  options.align_corners = test.flag("align_corners", false);
  options.recompute_scale_factor = test.flag("recompute_scale_factor", false);
  return single(interpolate(test.x(), options));
}

Outputs run_pad(const Case& test) {
  const PadMode mode = mode_from<PadMode>(test,
                                          {{"constant", PadMode::Constant},
                                           {"reflect", PadMode::Reflect},
                                           {"replicate", PadMode::Replicate},
                                           {"circular", PadMode::Circular}},
                                          PadMode::Constant);
  const double value = test.has_attr("value") ? test.number("value") : 0.0;
  return single(pad(test.x(), test.dims("pad"), mode, value));
}

Outputs run_channel_shuffle(const Case& test) {
  return single(channel_shuffle(test.x(), test.integer("groups")));
}

Outputs run_pixel_shuffle(const Case& test) {
  return single(pixel_shuffle(test.x(), test.integer("upscale_factor")));
}

Outputs run_pixel_unshuffle(const Case& test) {
  return single(pixel_unshuffle(test.x(), test.integer("downscale_factor")));
}

const Registration kOps{
    {"max_pool1d", run_max_pool<max_pool1d>},
    {"max_pool2d", run_max_pool<max_pool2d>},
    {"max_pool3d", run_max_pool<max_pool3d>},
    {"avg_pool1d", run_avg_pool<avg_pool1d>},
    {"avg_pool2d", run_avg_pool<avg_pool2d>},
    {"avg_pool3d", run_avg_pool<avg_pool3d>},
    {"adaptive_avg_pool1d", run_adaptive_pool<adaptive_avg_pool1d>},
    {"adaptive_avg_pool2d", run_adaptive_pool<adaptive_avg_pool2d>},
    {"adaptive_avg_pool3d", run_adaptive_pool<adaptive_avg_pool3d>},
    {"interpolate", run_interpolate},
    {"pad", run_pad},
    {"channel_shuffle", run_channel_shuffle},
    {"pixel_shuffle", run_pixel_shuffle},
    {"pixel_unshuffle", run_pixel_unshuffle},
};

}  // namespace
}  // namespace quanta::conform
