#include "quanta/ops/cpu/gemm/linear_int8.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {
namespace {

using onednn::DataType;
using onednn::Executable;
using onednn::Md;
using onednn::Tag;

Md matrix(std::int64_t rows, std::int64_t columns, DataType type) {
  return {{rows, columns}, type, Tag::ab};
}

ConvShape one_row(const QTensor& weight) {
  ConvShape shape;
  shape.out_channels = weight.sizes()[0];
  shape.in_channels = weight.sizes()[1];
  return shape;
}

/// Rows of `depth` codes, copied to `stride` with zeros behind them. `src` may lie in
/// Buffer::Padded.
const std::uint8_t* filled_up_rows(const std::uint8_t* src, std::int64_t rows, std::int64_t depth,
                                   std::int64_t stride) {
  auto* copy = reinterpret_cast<std::uint8_t*>(
      onednn::thread_buffer(onednn::Buffer::Scratchpad, static_cast<std::size_t>(rows * stride)));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(src + row * depth, depth, copy + row * stride);
    std::fill_n(copy + row * stride + depth, stride - depth, std::uint8_t{0});
  }
  return copy;
}

}  // namespace

LinearInt8::LinearInt8(QuantizedWeight weight)
    : weight_(std::move(weight)),
      shape_(one_row(weight_.weight())),
      packed_({{in_features(), out_features()}, DataType::s8, Tag::ba}, weight_.codes(),
              weight_.forms()) {}

ConvShape LinearInt8::shape(std::int64_t rows) const {
  ConvShape result = shape_;
  result.batch = rows;
  return result;
}

const ExactWeights& LinearInt8::exact_weights() const {
  std::call_once(exact_once_, [this] {
    exact_ = pack_exact_weights(weight_.codes(), weight_.zero_points(), shape_);
    weight_.release_codes();
  });
  return exact_;
}

const CodePanels& LinearInt8::panels() const {
  std::call_once(panels_once_, [this] {
    panels_ = pack_code_panels(weight_.codes(), out_features(), in_features(), {&weight_.forms()});
  });
  return panels_;
}

void LinearInt8::few_rows(std::int64_t rows, int threads, const std::uint8_t* src,
                          std::int32_t* dst) const {
  const std::int64_t depth = in_features();
  PanelProduct call{.src = src,
                    .rows = rows,
                    .src_stride = depth,
                    .code_bits = CodeBits::Eight,
                    .weight = &panels()};
  if (depth % kPanelDepth != 0) {
    call.src_stride = round_up(depth, kPanelDepth);
    call.src = filled_up_rows(src, rows, depth, call.src_stride);
  }
  const std::int64_t panel_count = panels().count();
  parallel_for(
      panel_count, ceil_div(panel_count, threads),
      [&](std::int64_t begin, std::int64_t end) { gemv_int8_panels(call, begin, end, dst); });
}

std::shared_ptr<const Int8Plan> LinearInt8::plan(std::int64_t rows, const CallQParams& qparams,
                                                 SumOutput output) const {
  const Key key{rows, qparams, output, threads_for_product(rows, in_features() * out_features()),
                running_code()};
  return plans_.get(key, [&] { return make_plan(key); });
}

std::shared_ptr<const Int8Plan> LinearInt8::make_plan(const Key& key) const {
  const auto plan = std::make_shared<Int8Plan>(weight_, key.qparams, key.output);
  const Int8Kernel kernel =
      choose_kernel(Int8Linear{.rows = key.rows,
                               .in_features = in_features(),
                               .weight_zero_points = weight_.has_zero_points(),
                               .codes = key.output != SumOutput::Sums});
  if (kernel == Int8Kernel::Exact) return plan;
  plan->compensate(weight_, key.qparams.src_zero_point);
  if (kernel == Int8Kernel::Codes) {
    plan->use_codes(kernel, panels(), key.threads);
    weight_.release_codes();
    plan->name = gemm_codes_name(panels(), key.rows);
    return plan;
  }
  if (kernel == Int8Kernel::FewRows) {
    plan->kernel = kernel;
    plan->threads = key.threads;
    plan->name = "quanta:gemv";
    return plan;
  }

  const Int8Epilog epilog = plan->epilog(weight_, key.qparams, key.output);
  const bool fused = epilog.kind != Int8Epilogue::None;
  const Md row = matrix(1, out_features(), DataType::f32);
  const Md one = matrix(1, 1, DataType::f32);
  const onednn::ThreadScope threads(key.threads);
  return onednn::checked("matmul", [&]() -> std::shared_ptr<const Int8Plan> {
    dnnl::post_ops post_ops;
    const Int8EpilogIndex index = append_epilog(post_ops, epilog, row, one);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post_ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc desc(
        onednn::engine(), matrix(key.rows, in_features(), DataType::u8),
        Md({in_features(), out_features()}, DataType::s8, Tag::any), fused ? row : Md(),
        matrix(key.rows, out_features(), fused ? DataType::u8 : DataType::s32), attributes,
        /*allow_empty=*/true);
    if (!desc) return plan;

    auto constants = plan->constants(packed_.in_layout(desc.weights_desc()), epilog, index,
                                     {row, row, one}, key.qparams.dst_zero_point);
    weight_.release_codes();
    plan->use_onednn(dnnl::matmul(desc), desc, std::move(constants), epilog, key.threads);
    return plan;
  });
}

std::string_view LinearInt8::codes(std::int64_t rows, const CallQParams& qparams, SumOutput output,
                                   const std::uint8_t* src, std::uint8_t* dst) const {
  const std::shared_ptr<const Int8Plan> chosen = plan(rows, qparams, output);
  if (chosen->kernel == Int8Kernel::Exact) {
    conv_exact_u8(src, qparams.src_zero_point, exact_weights(), shape(rows), chosen->requantize,
                  dst);
  } else if (chosen->kernel == Int8Kernel::Codes) {
    parallel_gemm_codes({dense_rows(src, rows, in_features()), panels(), chosen->panels, dst},
                        chosen->threads);
  } else if (chosen->kernel == Int8Kernel::OneDnn && !chosen->gives_sums) {
    chosen->executable->run(src, dst);
  } else {
    std::int32_t* sums = sums_buffer(rows * out_features());
    run_sums(*chosen, rows, qparams.src_zero_point, src, sums);
    requantize_rows(sums, chosen->compensation_or_null(), rows, out_features(), chosen->requantize,
                    dst);
  }
  return chosen->name;
}

void LinearInt8::run_sums(const Int8Plan& plan, std::int64_t rows, std::int32_t src_zero_point,
                          const std::uint8_t* src, std::int32_t* dst) const {
  if (plan.kernel == Int8Kernel::FewRows) {
    few_rows(rows, plan.threads, src, dst);
  } else if (plan.kernel == Int8Kernel::OneDnn) {
    plan.executable->run(src, dst);
  } else {
    conv_exact_s32(src, src_zero_point, exact_weights(), shape(rows), dst);
  }
}

Int8Sums LinearInt8::sums(std::int64_t rows, std::int32_t src_zero_point,
                          const std::uint8_t* src) const {
  const std::shared_ptr<const Int8Plan> chosen =
      plan(rows, CallQParams{1.0F, src_zero_point, 1.0F, 0}, SumOutput::Sums);
  std::int32_t* sums = sums_buffer(rows * out_features());
  run_sums(*chosen, rows, src_zero_point, src, sums);
  return {sums, chosen->compensation_or_null(), chosen->name, chosen};
}

std::string_view LinearInt8::products(std::int64_t rows, const std::uint8_t* src,
                                      std::int32_t* dst) const {
  const std::shared_ptr<const Int8Plan> chosen = plan(rows, CallQParams{}, SumOutput::Sums);
  run_sums(*chosen, rows, 0, src, dst);
  return chosen->name;
}

}  // namespace quanta::cpu
