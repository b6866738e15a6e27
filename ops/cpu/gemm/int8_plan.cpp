#include "quanta/ops/cpu/gemm/int8_plan.h"

#include <cstddef>
#include <utility>

#include "quanta/ops/cpu/gemm/added_bias.h"

namespace quanta::cpu {

using onednn::Executable;

Int8Plan::Int8Plan(const QuantizedWeight& weight, const CallQParams& qparams, SumOutput output) {
  if (output == SumOutput::Sums) return;
  BiasTerms terms = weight.bias_terms(qparams.src_scale);
  bias = std::move(terms.bias);
  multiplier = weight.multipliers(qparams);
  requantize = {bias.data(),
                multiplier.data(),
                qparams.dst_zero_point,
                output == SumOutput::CodesReLU ? qparams.dst_zero_point : 0,
                255,
                terms.factor};
}

void Int8Plan::compensate(const QuantizedWeight& weight, std::int32_t src_zero_point) {
  if (src_zero_point != 0) compensation = weight.compensation(src_zero_point);
}

void Int8Plan::use_codes(Int8Kernel which, const CodePanels& weight, int with_threads) {
  kernel = which;
  panels = panel_requantize(requantize, compensation_or_null(), weight);
  threads = with_threads;
}

Int8Epilog Int8Plan::epilog(const QuantizedWeight& weight, const CallQParams& qparams,
                            SumOutput output) {
  Int8Epilog result;
  const bool shifted = qparams.src_zero_point != 0;
  if (output == SumOutput::Sums || (shifted && !weight.exact_in_float())) return result;
  const auto channels = static_cast<std::int64_t>(bias.size());
  const std::int64_t depth = weight.weight().numel() / channels;
  std::optional<std::vector<float>> found =
      biases_to_add(requantize, channels, 255.0 * 128.0 * static_cast<double>(depth));
  if (!found) return result;
  added_bias = *std::move(found);
  result.kind = shifted ? Int8Epilogue::Compensate : Int8Epilogue::Multiply;
  result.added = shifted && weight.has_bias();
  result.relu = output == SumOutput::CodesReLU;
  result.zero_point = qparams.dst_zero_point != 0;
  return result;
}

std::vector<Executable::Argument> Int8Plan::constants(const dnnl::memory& weights,
                                                      const Int8Epilog& epilog,
                                                      const Int8EpilogIndex& index,
                                                      const EpilogDescs& descs,
                                                      std::int32_t dst_zero_point) const {
  std::vector<Executable::Argument> result{{DNNL_ARG_WEIGHTS, weights}};
  if (epilog.kind == Int8Epilogue::None) return result;
  const std::vector<float> sums(compensation.begin(), compensation.end());
  const bool shifted = epilog.kind == Int8Epilogue::Compensate;
  result.push_back(
      {DNNL_ARG_BIAS, onednn::floats(descs.bias, shifted ? sums.data() : added_bias.data())});
  if (epilog.added) {
    result.push_back({post_op_argument(index.added), onednn::floats(descs.row, added_bias.data())});
  }
  result.push_back(
      {post_op_argument(index.multiplier), onednn::floats(descs.row, multiplier.data())});
  if (epilog.zero_point) {
    const auto zero_point = static_cast<float>(dst_zero_point);
    result.push_back({post_op_argument(index.zero_point), onednn::floats(descs.one, &zero_point)});
  }
  return result;
}

void Int8Plan::use_onednn(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& descs,
                          std::vector<Executable::Argument> constants, const Int8Epilog& epilog,
                          int with_threads) {
  kernel = Int8Kernel::OneDnn;
  gives_sums = epilog.kind == Int8Epilogue::None;
  executable.emplace(primitive, descs, std::move(constants), with_threads);
  name = executable->name();
}

std::int32_t* sums_buffer(std::int64_t count) {
  return reinterpret_cast<std::int32_t*>(onednn::thread_buffer(
      onednn::Buffer::Sums, static_cast<std::size_t>(count) * sizeof(std::int32_t)));
}

}  // namespace quanta::cpu
