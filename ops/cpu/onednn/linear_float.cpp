#include "quanta/ops/cpu/onednn/linear_float.h"

#include <utility>
#include <vector>

#include "quanta/ops/cpu/work_size.h"

namespace quanta::cpu {

using onednn::DataType;
using onednn::Md;
using onednn::Tag;

LinearFloat::LinearFloat(Tensor weight, Tensor bias, FloatEpilogue epilogue)
    : weight_(std::move(weight)),
      bias_(std::move(bias)),
      in_features_(weight_.sizes()[1]),
      out_features_(weight_.sizes()[0]),
      epilogue_(epilogue),
      packed_({{in_features_, out_features_}, DataType::f32, Tag::ba}, weight_.data_ptr()) {}

LinearFloat::LinearFloat(Tensor weight, Back)
    : weight_(std::move(weight)),
      in_features_(weight_.sizes()[0]),
      out_features_(weight_.sizes()[1]),
      epilogue_(FloatEpilogue::None),
      packed_({{in_features_, out_features_}, DataType::f32, Tag::ab}, weight_.data_ptr()) {}

std::shared_ptr<const onednn::Executable> LinearFloat::make(const Key& key) const {
  const onednn::ThreadScope threads(key.threads);
  return onednn::checked("matmul", [&] {
    dnnl::post_ops post_ops;
    if (epilogue_ == FloatEpilogue::ReLU) {
      post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post_ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    // An empty description stands for no bias.
    const Md bias = bias_.defined() ? Md({1, out_features()}, DataType::f32, Tag::ab) : Md();
    const dnnl::matmul::primitive_desc desc(
        onednn::engine(), Md({key.rows, in_features()}, DataType::f32, Tag::ab),
        Md({in_features(), out_features()}, DataType::f32, Tag::any), bias,
        Md({key.rows, out_features()}, DataType::f32, Tag::ab), attributes);
    std::vector<onednn::Executable::Argument> constants{
        {DNNL_ARG_WEIGHTS, packed_.in_layout(desc.weights_desc())}};
    if (bias_.defined()) {
      constants.push_back(
          {DNNL_ARG_BIAS, onednn::floats(bias, static_cast<const float*>(bias_.data_ptr()))});
    }
    return std::make_shared<const onednn::Executable>(dnnl::matmul(desc), desc,
                                                      std::move(constants), key.threads);
  });
}

std::string_view LinearFloat::run(std::int64_t rows, const float* src, float* dst) const {
  const Key key{rows, threads_for(rows * in_features() * out_features() * 4)};
  const std::shared_ptr<const onednn::Executable> plan = plans_.get(key, [&] { return make(key); });
  plan->run(src, dst);
  return plan->name();
}

}  // namespace quanta::cpu
