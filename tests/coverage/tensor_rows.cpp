#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/factory.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/sort.h"
#include "registry.h"

namespace quanta::coverage {

std::vector<Section> tensor_sections() {
  Section s{"Quantized tensor methods", {}};
  s.from("ops/quantize.h", "tests/ops/quantize_test.cpp");
  s.row("quantize_per_tensor",
        QUANTA_CALL(quantize_per_tensor(x, scale, zero_point, DType::QUInt8)),
        "tensor_quantize/quantize_per_tensor");
  s.row("quantize_per_channel",
        QUANTA_CALL(
            quantize_per_channel(x, ones({4}), Tensor::zeros({4}, DType::Int64), 1, DType::QInt8)),
        "tensor_quantize/quantize_per_channel tensor_quantize/quantize_per_channel_float_qparams");
  s.row("quantize_per_tensor_dynamic",
        QUANTA_CALL(quantize_per_tensor_dynamic(x, DType::QInt8, false)),
        "tensor_quantize/quantize_per_tensor_dynamic");
  s.row("dequantize", QUANTA_CALL(dequantize(x)), "tensor_quantize/dequantize");
  s.row("int_repr", QUANTA_QUANTIZED_CALL(int_repr(x)), "tensor_quantize/int_repr");

  s.from("runtime/tensor.h", "tests/runtime/tensor_test.cpp");
  s.row("q_scale", QUANTA_QUANTIZED_CALL(x.q_scale()), "tensor_methods/q_scale");
  s.row("q_zero_point", QUANTA_QUANTIZED_CALL(x.q_zero_point()), "tensor_methods/q_zero_point");
  s.row("q_per_channel_scales", QUANTA_QUANTIZED_CALL(x.q_per_channel_scales()),
        "tensor_methods/q_per_channel_scales");
  s.row("q_per_channel_zero_points", QUANTA_QUANTIZED_CALL(x.q_per_channel_zero_points()),
        "tensor_methods/q_per_channel_zero_points")
      .tested_in("tests/runtime/pt_file_test.cpp");
  s.row("q_per_channel_axis", QUANTA_QUANTIZED_CALL(x.q_per_channel_axis()),
        "tensor_methods/q_per_channel_axis");
  s.row("qscheme", QUANTA_QUANTIZED_CALL(x.qscheme()), "tensor_methods");
  s.row("view", QUANTA_CALL(x.view({2, 2, 2, 6, 6})), "tensor_methods/view");
  s.row("as_strided", QUANTA_CALL(x.as_strided({2, 2}, {4, 1}, 0)), "tensor_methods/as_strided");
  s.row("expand", QUANTA_CALL(x.expand({3, 2, 4, 6, 6})), "tensor_methods/expand");
  s.row("flatten", QUANTA_CALL(x.flatten(2)), "tensor_methods/flatten");
  s.row("select", QUANTA_CALL(x.select(0, 1)), "tensor_methods/select");
  s.row("slice", QUANTA_CALL(x.slice(2, 1, 5, 2)), "tensor_methods/slice tensor_methods/narrow");
  s.row("indexing", QUANTA_CALL(x[0]), "tensor_methods/index");
  s.row("permute", QUANTA_CALL(x.permute({0, 2, 3, 1})), "tensor_methods/permute");
  s.row("transpose", QUANTA_CALL(x.transpose(1, 2)), "tensor_methods/transpose tensor_methods/t");
  s.row("squeeze", QUANTA_CALL(x.squeeze(0)), "tensor_methods/squeeze");
  s.row("unsqueeze", QUANTA_CALL(x.unsqueeze(1)), "tensor_methods/unsqueeze");
  s.row("copy_", QUANTA_CALL(x.copy_(x)), "tensor_methods/copy_");
  s.row("clone", QUANTA_CALL(x.clone()), "tensor_methods/clone");
  s.row("contiguous(memory_format)", QUANTA_CALL(x.contiguous(MemoryFormat::ChannelsLast)),
        "tensor_methods/contiguous");
  s.row("equal", QUANTA_CALL(x.equal(x)), "tensor_methods/equal");
  s.row("fill_", QUANTA_CALL(x.fill_(0.5)), "tensor_methods/fill_");
  s.row("printing", QUANTA_CALL(to_string(x)));
  s.row("detach", QUANTA_CALL(x.detach()), "tensor_methods/detach")
      .tested_in("tests/ops/shape_test.cpp");

  s.from("ops/indexing.h", "tests/ops/indexing_test.cpp");
  s.row("indexing with tensors and masks", QUANTA_CALL(index(x, {Ellipsis{}, indices()})),
        "tensor_methods/index");
  s.row("index_put_", QUANTA_CALL(index_put_(x.clone(), {0}, 1.0)), "tensor_methods/index_put_");
  s.row("index_select", QUANTA_CALL(index_select(x, 1, indices())), "tensor_methods/index_select");
  s.row("gather", QUANTA_CALL(gather(x, 0, Tensor::zeros({1, 1, 1, 1}, DType::Int64))));
  s.row("take", QUANTA_CALL(take(x, indices())));
  s.row("masked_fill", QUANTA_CALL(masked_fill(x, ones({6}).to(DType::Bool), 0.5)),
        "tensor_methods/masked_fill tensor_methods/masked_fill_");

  s.from("ops/reduce.h", "tests/ops/reduce_test.cpp");
  s.row("max", QUANTA_CALL(max(x, 1)), "tensor_methods/max");
  s.row("min", QUANTA_CALL(min(x, 1)), "tensor_methods/min");
  s.row("mean", QUANTA_CALL(mean(x, {2, 3})), "tensor_methods/mean");
  s.row("max out",
        QUANTA_CALL(max_out(x.select(3, 0).clone(), Tensor::empty({0}, DType::Int64), x, 3)),
        "tensor_methods/max");
  s.row("mean out", QUANTA_CALL(mean_out(x.select(3, 0).clone(), x, {3})), "tensor_methods/mean");
  s.row("std", QUANTA_CALL(std(x, {2, 3})), "tensor_methods/std");

  s.from("ops/sort.h", "tests/ops/sort_test.cpp");
  s.row("sort", QUANTA_CALL(sort(x)), "tensor_methods/sort tensor_methods/msort");
  s.row("argsort", QUANTA_CALL(argsort(x)), "tensor_methods/sort");
  s.row("topk", QUANTA_CALL(topk(x, 2)), "tensor_methods/topk");

  s.from("ops/shape.h", "tests/ops/shape_test.cpp");
  s.row("resize_", QUANTA_CALL(resize_(x.clone(), {4, 3})), "tensor_methods/resize_");
  s.row("stack", QUANTA_CALL(stack(std::array{x, x})), "tensor_methods/stack");
  s.row("chunk", QUANTA_CALL(chunk(x, 2)), "tensor_methods/chunk");
  s.row("split", QUANTA_CALL(split(x, 1)), "tensor_methods/split");
  s.row("unbind", QUANTA_CALL(unbind(x)), "tensor_methods/unbind");
  s.row("unfold", QUANTA_CALL(unfold(x, 3, 2, 1)));
  s.row("flip", QUANTA_CALL(flip(x, {0, 2})), "tensor_methods/flip");
  s.row("repeat", QUANTA_CALL(repeat(x, {2, 1, 1, 3})), "tensor_methods/repeat");

  s.from("ops/compare.h", "tests/ops/compare_test.cpp");
  s.row("eq", QUANTA_CALL(eq(x, x)), "tensor_methods/eq");
  s.row("ne", QUANTA_CALL(ne(x, x)), "tensor_methods/ne");
  s.row("lt", QUANTA_CALL(lt(x, 0.5)), "tensor_methods/lt");
  s.row("le", QUANTA_CALL(le(x, 0.5)), "tensor_methods/le");
  s.row("gt", QUANTA_CALL(gt(x, 0.5)), "tensor_methods/gt");
  s.row("ge", QUANTA_CALL(ge(x, 0.5)), "tensor_methods/ge");
  s.row("where", QUANTA_CALL(where(ge(x, 0.5), x, x)));

  s.from("ops/factory.h", "tests/ops/shape_test.cpp");
  s.row("make_per_tensor_quantized_tensor",
        QUANTA_CALL(make_per_tensor_quantized_tensor(x, scale, zero_point)), "tensor_methods");
  s.row("make_per_channel_quantized_tensor",
        QUANTA_CALL(
            make_per_channel_quantized_tensor(x, ones({4}), Tensor::zeros({4}, DType::Int64), 1)),
        "tensor_methods");
  s.row("empty_quantized", QUANTA_QUANTIZED_CALL(empty_quantized(x.sizes(), x)));

  s.from("ops/cat.h", "tests/ops/arithmetic_test.cpp");
  s.row("cat", QUANTA_CALL(cat(std::array{x, x}, 1)), "tensor_methods/cat arithmetic/cat");
  return {s};
}

}  // namespace quanta::coverage
