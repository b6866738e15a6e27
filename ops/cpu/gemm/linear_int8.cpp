#include "quanta/ops/cpu/gemm/linear_int8.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/onednn/plans.h"
#include "quanta/ops/cpu/work_size.h"

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

/// Up to so many rows the weight in panels is read in about the time of its products, without what
/// a call of oneDNN costs; with tiles oneDNN's products take less.
std::int64_t max_few_rows() { return has_tiles() ? 3 : 8; }

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

std::int32_t* sums_buffer(std::int64_t count) {
  return reinterpret_cast<std::int32_t*>(onednn::thread_buffer(
      onednn::Buffer::Sums, static_cast<std::size_t>(count) * sizeof(std::int32_t)));
}

}  // namespace

struct LinearInt8::Plan {
  enum class Kind : std::uint8_t { FewRows, OneDnn, OneDnnSums, Exact };
  Kind kind = Kind::Exact;
  std::vector<float> bias, multiplier;
  std::vector<std::int32_t> compensation;
  RequantizeParams requantize;
  std::optional<Executable> executable;
  int threads = 1;  ///< FewRows
  std::string_view name = "quanta:exact";

  const std::int32_t* compensation_or_null() const {
    return compensation.empty() ? nullptr : compensation.data();
  }
};

LinearInt8::LinearInt8(QuantizedWeight weight)
    : weight_(std::move(weight)),
      shape_(one_row(weight_.weight())),
      use_onednn_(!weight_.has_zero_points() && onednn::has_exact_u8s8()),
      packed_({{in_features(), out_features()}, DataType::s8, Tag::ba}, weight_.codes()) {}

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

const std::int8_t* LinearInt8::panels() const {
  std::call_once(panels_once_,
                 [this] { panels_ = int8_panels(weight_.codes(), out_features(), in_features()); });
  return static_cast<const std::int8_t*>(panels_.data_ptr());
}

void LinearInt8::few_rows(std::int64_t rows, int threads, const std::uint8_t* src,
                          std::int32_t* dst) const {
  const std::int64_t depth = in_features();
  GemvInt8 call{.src = src,
                .rows = rows,
                .src_stride = depth,
                .code_bits = CodeBits::Eight,
                .weight = panels(),
                .out_features = out_features(),
                .in_features = depth,
                .vnni = onednn::has_exact_u8s8()};
  if (depth % kPanelDepth != 0) {
    call.src_stride = (depth + kPanelDepth - 1) / kPanelDepth * kPanelDepth;
    call.src = filled_up_rows(src, rows, depth, call.src_stride);
  }
  const std::int64_t panel_count = (out_features() + kPanelChannels - 1) / kPanelChannels;
  parallel_for(
      panel_count, (panel_count + threads - 1) / threads,
      [&](std::int64_t begin, std::int64_t end) { gemv_int8_panels(call, begin, end, dst); });
}

std::shared_ptr<const LinearInt8::Plan> LinearInt8::plan(std::int64_t rows,
                                                         const CallQParams& qparams,
                                                         SumOutput output) const {
  const Key key{rows, qparams, output, threads_for(rows * in_features() * out_features())};
  return plans_.get(key, [&] { return make_plan(key); });
}

std::shared_ptr<const LinearInt8::Plan> LinearInt8::make_plan(const Key& key) const {
  const auto plan = std::make_shared<Plan>();
  const CallQParams& qparams = key.qparams;
  const bool codes = key.output != SumOutput::Sums;
  const bool relu = key.output == SumOutput::CodesReLU;
  if (codes) {
    plan->bias = weight_.bias_over_scale(qparams.src_scale);
    plan->multiplier = weight_.multipliers(qparams);
    plan->requantize = {plan->bias.data(), plan->multiplier.data(), qparams.dst_zero_point,
                        relu ? qparams.dst_zero_point : 0, 255};
  }
  const bool shifted = qparams.src_zero_point != 0;
  const bool few = key.rows <= max_few_rows() && !weight_.has_zero_points();
  if (shifted && (few || use_onednn_)) {
    plan->compensation = weight_.compensation(qparams.src_zero_point);
  }
  if (few) {
    plan->kind = Plan::Kind::FewRows;
    plan->threads = key.threads;
    plan->name = "quanta:gemv";
    return plan;
  }
  if (!use_onednn_) return plan;

  Int8Epilog epilog;
  if (codes && (!shifted || weight_.exact_in_float())) {
    epilog.kind = shifted ? Int8Epilogue::Compensate : Int8Epilogue::Multiply;
    epilog.added = shifted && weight_.has_bias();
    epilog.relu = relu;
    epilog.zero_point = qparams.dst_zero_point != 0;
  }
  const bool fused = epilog.kind != Int8Epilogue::None;
  const Md row = matrix(1, out_features(), DataType::f32);
  const Md one = matrix(1, 1, DataType::f32);
  const onednn::ThreadScope threads(key.threads);
  return onednn::checked("matmul", [&]() -> std::shared_ptr<const Plan> {
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

    std::vector<Executable::Argument> constants{
        {DNNL_ARG_WEIGHTS, packed_.in_layout(desc.weights_desc())}};
    weight_.release_codes();
    if (fused) {
      const std::vector<float> sums(plan->compensation.begin(), plan->compensation.end());
      constants.push_back(
          {DNNL_ARG_BIAS, onednn::floats(row, shifted ? sums.data() : plan->bias.data())});
      if (epilog.added) {
        constants.push_back(
            {post_op_argument(index.added), onednn::floats(row, plan->bias.data())});
      }
      constants.push_back(
          {post_op_argument(index.multiplier), onednn::floats(row, plan->multiplier.data())});
      if (epilog.zero_point) {
        const auto zero_point = static_cast<float>(qparams.dst_zero_point);
        constants.push_back({post_op_argument(index.zero_point), onednn::floats(one, &zero_point)});
      }
    }
    plan->kind = fused ? Plan::Kind::OneDnn : Plan::Kind::OneDnnSums;
    plan->executable.emplace(dnnl::matmul(desc), desc, std::move(constants), key.threads);
    plan->name = plan->executable->name();
    return plan;
  });
}

std::string_view LinearInt8::codes(std::int64_t rows, const CallQParams& qparams, SumOutput output,
                                   const std::uint8_t* src, std::uint8_t* dst) const {
  const std::shared_ptr<const Plan> chosen = plan(rows, qparams, output);
  switch (chosen->kind) {
    case Plan::Kind::OneDnn:
      chosen->executable->run(src, dst);
      break;
    case Plan::Kind::FewRows:
    case Plan::Kind::OneDnnSums: {
      std::int32_t* sums = sums_buffer(rows * out_features());
      run_sums(*chosen, rows, qparams.src_zero_point, src, sums);
      requantize_rows(sums, chosen->compensation_or_null(), rows, out_features(),
                      chosen->requantize, dst);
      break;
    }
    case Plan::Kind::Exact:
      conv_exact_u8(src, qparams.src_zero_point, exact_weights(), shape(rows), chosen->requantize,
                    dst);
      break;
  }
  return chosen->name;
}

void LinearInt8::run_sums(const Plan& plan, std::int64_t rows, std::int32_t src_zero_point,
                          const std::uint8_t* src, std::int32_t* dst) const {
  if (plan.kind == Plan::Kind::FewRows) {
    few_rows(rows, plan.threads, src, dst);
  } else if (plan.kind == Plan::Kind::OneDnnSums) {
    plan.executable->run(src, dst);
  } else {
    conv_exact_s32(src, src_zero_point, exact_weights(), shape(rows), dst);
  }
}

Int8Sums LinearInt8::sums(std::int64_t rows, std::int32_t src_zero_point,
                          const std::uint8_t* src) const {
  const std::shared_ptr<const Plan> chosen =
      plan(rows, CallQParams{1.0F, src_zero_point, 1.0F, 0}, SumOutput::Sums);
  std::int32_t* sums = sums_buffer(rows * out_features());
  run_sums(*chosen, rows, src_zero_point, src, sums);
  return {sums, chosen->compensation_or_null(), chosen->name, chosen};
}

std::string_view LinearInt8::products(std::int64_t rows, const std::uint8_t* src,
                                      std::int32_t* dst) const {
  const std::shared_ptr<const Plan> chosen = plan(rows, CallQParams{}, SumOutput::Sums);
  run_sums(*chosen, rows, 0, src, dst);
  return chosen->name;
}

}  // namespace quanta::cpu
