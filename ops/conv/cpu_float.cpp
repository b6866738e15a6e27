#include "quanta/ops/conv/cpu_float.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "quanta/ops/cpu/onednn/kept_convolutions.h"
#include "quanta/ops/cpu/onednn/plans.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/error.h"

namespace quanta::cpu {
namespace {

using dnnl::memory;
using onednn::DataType;
using onednn::Md;
using onednn::Tag;

memory::dims last(const std::int64_t (&values)[3], int spatial) {
  return {values + 3 - spatial, values + 3};
}

std::int64_t multiply_adds(const ConvShape& shape) {
  const std::int64_t(&positions)[3] = shape.transposed ? shape.in : shape.out;
  return shape.batch * shape.out_channels * (shape.in_channels / shape.groups) * positions[0] *
         positions[1] * positions[2] * shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
}

template <typename Primitive>
std::shared_ptr<const onednn::Executable> executable(std::string_view name, const ConvShape& shape,
                                                     int spatial, dnnl::algorithm algorithm,
                                                     const memory::dims& padding_right,
                                                     FloatEpilogue epilogue, const Tensor& bias,
                                                     const onednn::PackedWeights& packed,
                                                     int threads) {
  return onednn::checked(name, [&] {
    dnnl::post_ops post_ops;
    const bool relu = epilogue == FloatEpilogue::ReLU;
    if (relu) {
      post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post_ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    // An empty description stands for no bias.
    const Md bias_desc = bias.defined() ? Md({shape.out_channels}, DataType::f32, Tag::x) : Md();
    memory::dims dilation = last(shape.dilation, spatial);
    for (auto& value : dilation) --value;
    typename Primitive::primitive_desc desc(
        onednn::engine(), dnnl::prop_kind::forward_inference, algorithm,
        conv_src_desc(shape, spatial, DataType::f32),
        conv_any_weight_desc(shape, spatial, DataType::f32), bias_desc,
        conv_dst_desc(shape, spatial, DataType::f32), last(shape.stride, spatial), dilation,
        last(shape.padding, spatial), padding_right, attributes);
    const std::string settings =
        fmt::format("float32 {}d, bias {}, relu {}", spatial, bias.defined(), relu);
    std::optional<dnnl::primitive> primitive;
    while (!(primitive = onednn::make_convolution(desc, shape, settings))) {
      if (!desc.next_impl()) {
        throw BackendError(
            "oneDNN has only implementations of this convolution that it cannot free");
      }
    }
    std::vector<onednn::Executable::Argument> constants{
        {DNNL_ARG_WEIGHTS, packed.in_layout(desc.weights_desc())}};
    if (bias.defined()) {
      constants.push_back(
          {DNNL_ARG_BIAS, onednn::floats(bias_desc, static_cast<const float*>(bias.data_ptr()))});
    }
    return std::make_shared<const onednn::Executable>(*primitive, desc, std::move(constants),
                                                      threads);
  });
}

}  // namespace

ConvFloat::ConvFloat(Tensor weight, Tensor bias, const ConvShape& geometry, int spatial,
                     FloatEpilogue epilogue)
    : weight_(std::move(weight)),
      bias_(std::move(bias)),
      spatial_(spatial),
      epilogue_(epilogue),
      packed_(conv_plain_weight_desc(geometry, spatial, DataType::f32), weight_.data_ptr()) {}

std::shared_ptr<const onednn::Executable> ConvFloat::make(const ConvShape& shape,
                                                          int threads) const {
  const onednn::ThreadScope scope(threads);
  memory::dims right = last(shape.padding, spatial_);
  if (!shape.transposed) {
    return executable<dnnl::convolution_forward>("convolution_forward", shape, spatial_,
                                                 dnnl::algorithm::convolution_direct, right,
                                                 epilogue_, bias_, packed_, threads);
  }
  // Output padding is padding taken away on the right.
  for (int i = 0; i < spatial_; ++i) {
    const int d = 3 - spatial_ + i;
    right[static_cast<std::size_t>(i)] = (shape.in[d] - 1) * shape.stride[d] - shape.out[d] -
                                         shape.padding[d] +
                                         shape.dilation[d] * (shape.kernel[d] - 1) + 1;
  }
  return executable<dnnl::deconvolution_forward>("deconvolution_forward", shape, spatial_,
                                                 dnnl::algorithm::deconvolution_direct, right,
                                                 epilogue_, bias_, packed_, threads);
}

std::string_view ConvFloat::run(const ConvShape& shape, const float* src, float* dst) const {
  const Key key{shape.batch,
                {shape.in[0], shape.in[1], shape.in[2]},
                {shape.out[0], shape.out[1], shape.out[2]},
                threads_for(multiply_adds(shape) * 4)};
  const std::shared_ptr<const onednn::Executable> plan =
      plans_.get(key, [&] { return make(shape, key.threads); });
  plan->run(src, dst);
  return plan->name();
}

}  // namespace quanta::cpu
