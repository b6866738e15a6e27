#include <span>
#include <string>
#include <vector>

#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/tensor.h"
#include "registry.h"

namespace quanta::conform {
namespace {

Outputs run_view(const Case& test) { return single(test.x().view(test.dims("shape"))); }

Outputs run_reshape(const Case& test) { return single(test.x().reshape(test.dims("shape"))); }

Outputs run_flatten(const Case& test) {
  const std::int64_t start = test.has_attr("start_dim") ? test.integer("start_dim") : 0;
  const std::int64_t end = test.has_attr("end_dim") ? test.integer("end_dim") : -1;
  return single(test.x().flatten(start, end));
}

Outputs run_permute(const Case& test) { return single(test.x().permute(test.dims("dims"))); }

Outputs run_transpose(const Case& test) {
  return single(test.x().transpose(test.integer("dim0"), test.integer("dim1")));
}

Outputs run_t(const Case& test) { return single(test.x().t()); }

Outputs run_select(const Case& test) {
  return single(test.x().select(test.integer("dim"), test.integer("index")));
}

Outputs run_slice(const Case& test) {
  const std::int64_t step = test.has_attr("step") ? test.integer("step") : 1;
  return single(
      test.x().slice(test.integer("dim"), test.integer("start"), test.integer("end"), step));
}

Outputs run_narrow(const Case& test) {
  return single(
      test.x().narrow(test.integer("dim"), test.integer("start"), test.integer("length")));
}

Outputs run_expand(const Case& test) { return single(test.x().expand(test.dims("size"))); }

Outputs run_squeeze(const Case& test) {
  return single(test.has_attr("dim") ? test.x().squeeze(test.integer("dim")) : test.x().squeeze());
}

Outputs run_unsqueeze(const Case& test) { return single(test.x().unsqueeze(test.integer("dim"))); }

Outputs run_as_strided(const Case& test) {
  const std::int64_t offset = test.has_attr("storage_offset") ? test.integer("storage_offset") : 0;
  return single(test.x().as_strided(test.dims("size"), test.dims("stride"), offset));
}

Outputs run_clone(const Case& test) { return single(test.x().clone()); }

Outputs run_contiguous(const Case& test) {
  const Tensor x = test.has_attr("permute") ? test.x().permute(test.dims("permute")) : test.x();
  return single(x.contiguous());
}

Outputs run_copy_in_place(const Case& test) {
  const Tensor x = test.x();
  x.copy_(test.tensor("src"));
  return single(x);
}

Outputs run_fill_in_place(const Case& test) {
  const Tensor x = test.x();
  x.fill_(test.number("value"));
  return single(x);
}

Outputs run_equal(const Case& test) {
  return single(Tensor::scalar(test.x().equal(test.tensor("y")) ? 1.0 : 0.0, DType::Bool));
}

Outputs run_detach(const Case& test) { return single(test.x().detach()); }

Outputs run_resize_in_place(const Case& test) {
  const Tensor x = test.x();
  resize_(x, test.dims("size"));
  return single(x);
}

// out0, out1, ...
Outputs listed(const std::vector<Tensor>& parts) {
  Outputs outputs;
  for (std::size_t i = 0; i < parts.size(); ++i) outputs.set("out" + std::to_string(i), parts[i]);
  return outputs;
}

Outputs run_stack(const Case& test) {
  return single(stack(test.tensors("tensors"), test.integer("dim")));
}

Outputs run_chunk(const Case& test) {
  return listed(chunk(test.x(), test.integer("chunks"), test.integer("dim")));
}

Outputs run_split(const Case& test) {
  if (test.attr("split_size").is_array()) {
    return listed(
        split_with_sizes(test.x(), test.dims("split_size").to_vector(), test.integer("dim")));
  }
  return listed(split(test.x(), test.integer("split_size"), test.integer("dim")));
}

Outputs run_unbind(const Case& test) { return listed(unbind(test.x(), test.integer("dim"))); }

Outputs run_flip(const Case& test) { return single(flip(test.x(), test.dims("dims"))); }

Outputs run_repeat(const Case& test) { return single(repeat(test.x(), test.dims("repeats"))); }

Outputs run_unfold(const Case& test) {
  return single(
      unfold(test.x(), test.integer("dimension"), test.integer("size"), test.integer("step")));
}

Outputs run_index_select(const Case& test) {
  return single(index_select(test.x(), test.integer("dim"), test.tensor("index")));
}

Outputs run_gather(const Case& test) {
  return single(gather(test.x(), test.integer("dim"), test.tensor("index")));
}

// "1:3", ":", "::2".
Slice slice_from_text(const std::string& text) {
  Slice slice;
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.size() < 2 || parts.size() > 3) throw FormatError("index: cannot read " + text);
  if (!parts[0].empty()) slice.start = std::stoll(parts[0]);
  if (!parts[1].empty()) slice.stop = std::stoll(parts[1]);
  if (parts.size() == 3 && !parts[2].empty()) slice.step = std::stoll(parts[2]);
  return slice;
}

// One entry of x[...]: a number, null, "...", a slice as text, or a list of positions.
TensorIndex index_from_json(const Json& json) {
  if (json.is_null()) return NewAxis{};
  if (json.is_array()) return Tensor::from_int64(json.get<std::vector<std::int64_t>>());
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json == "...") return Ellipsis{};
  return slice_from_text(json.get<std::string>());
}

Outputs run_index(const Case& test) {
  std::vector<TensorIndex> indices;
  for (const Json& entry : test.attr("index")) indices.push_back(index_from_json(entry));
  return single(index(test.x(), indices));
}

// The attribute index lists positions along the first dimension.
Outputs run_index_put_in_place(const Case& test) {
  const Tensor x = test.x();
  index_put_(x, {index_from_json(test.attr("index"))}, test.number("value"));
  return single(x);
}

Outputs run_masked_fill(const Case& test) {
  return single(masked_fill(test.x(), test.tensor("mask"), test.number("value")));
}

Outputs run_masked_fill_in_place(const Case& test) {
  const Tensor x = test.x();
  masked_fill_(x, test.tensor("mask"), test.number("value"));
  return single(x);
}

Outputs run_where(const Case& test) {
  return single(where(test.tensor("condition"), test.x(), test.tensor("y")));
}

using CompareTensors = Tensor (*)(const Tensor&, const Tensor&);
using CompareNumber = Tensor (*)(const Tensor&, double);

// With `other` or the tensor `y`; with neither the tensor is compared with itself.
Runner comparison(CompareTensors tensors, CompareNumber number) {
  return [=](const Case& test) {
    if (test.has_attr("other")) return single(number(test.x(), test.number("other")));
    return single(tensors(test.x(), test.has_input("y") ? test.tensor("y") : test.x()));
  };
}

Outputs values_and_indices(const ValuesIndices& result) {
  Outputs outputs;
  outputs.set("values", result.values);
  outputs.set("indices", result.indices);
  return outputs;
}

using ExtremeFull = Tensor (*)(const Tensor&);
using ExtremeAlong = ValuesIndices (*)(const Tensor&, std::int64_t, const ReduceOptions&);

Runner extreme(ExtremeFull full, ExtremeAlong along) {
  return [=](const Case& test) {
    if (!test.has_attr("dim")) return single(full(test.x()));
    return values_and_indices(
        along(test.x(), test.integer("dim"), {.keepdim = test.flag("keepdim", false)}));
  };
}

Outputs run_mean(const Case& test) {
  return single(mean(test.x(), test.dims("dim", {}), {.keepdim = test.flag("keepdim", false)}));
}

Outputs run_std(const Case& test) {
  StdOptions options{.keepdim = test.flag("keepdim", false)};
  if (test.has_attr("unbiased")) options.correction = test.flag("unbiased", true) ? 1.0 : 0.0;
  if (test.has_attr("correction")) options.correction = test.number("correction");
  return single(std(test.x(), test.dims("dim", {}), options));
}

SortOptions sort_options(const Case& test) {
  SortOptions options{.descending = test.flag("descending", false)};
  if (test.has_attr("dim")) options.dim = test.integer("dim");
  return options;
}

Outputs run_sort(const Case& test) {
  return values_and_indices(sort(test.x(), sort_options(test)));
}

Outputs run_argsort(const Case& test) { return single(argsort(test.x(), sort_options(test))); }

Outputs run_msort(const Case& test) { return single(msort(test.x())); }

Outputs run_topk(const Case& test) {
  TopkOptions options{.largest = test.flag("largest", true), .sorted = test.flag("sorted", true)};
  if (test.has_attr("dim")) options.dim = test.integer("dim");
  return values_and_indices(topk(test.x(), test.integer("k"), options));
}

Outputs run_q_scale(const Case& test) { return single(test.qx().q_scale()); }

Outputs run_q_zero_point(const Case& test) { return single(test.qx().q_zero_point()); }

Outputs run_q_scales(const Case& test) { return single(test.qx().q_per_channel_scales()); }

Outputs run_q_zero_points(const Case& test) {
  return single(test.qx().q_per_channel_zero_points());
}

Outputs run_q_axis(const Case& test) { return single(test.qx().q_per_channel_axis()); }

const Registration kOps{
    {"view", run_view},
    {"reshape", run_reshape},
    {"flatten", run_flatten},
    {"permute", run_permute},
    {"transpose", run_transpose},
    {"t", run_t},
    {"select", run_select},
    {"slice", run_slice},
    {"narrow", run_narrow},
    {"expand", run_expand},
    {"squeeze", run_squeeze},
    {"unsqueeze", run_unsqueeze},
    {"as_strided", run_as_strided},
    {"clone", run_clone},
    {"contiguous", run_contiguous},
    {"copy_", run_copy_in_place},
    {"fill_", run_fill_in_place},
    {"equal", run_equal},
    {"detach", run_detach},
    {"resize_", run_resize_in_place},
    {"stack", run_stack},
    {"chunk", run_chunk},
    {"split", run_split},
    {"unbind", run_unbind},
    {"flip", run_flip},
    {"repeat", run_repeat},
    {"unfold", run_unfold},
    {"index_select", run_index_select},
    {"gather", run_gather},
    {"index", run_index},
    {"index_put_", run_index_put_in_place},
    {"masked_fill", run_masked_fill},
    {"masked_fill_", run_masked_fill_in_place},
    {"where", run_where},
    {"eq", comparison(eq, eq)},
    {"ne", comparison(ne, ne)},
    {"lt", comparison(lt, lt)},
    {"le", comparison(le, le)},
    {"gt", comparison(gt, gt)},
    {"ge", comparison(ge, ge)},
    {"max", extreme(max, max)},
    {"min", extreme(min, min)},
    {"mean", run_mean},
    {"std", run_std},
    {"sort", run_sort},
    {"argsort", run_argsort},
    {"msort", run_msort},
    {"topk", run_topk},
    {"q_scale", run_q_scale},
    {"q_zero_point", run_q_zero_point},
    {"q_per_channel_scales", run_q_scales},
    {"q_per_channel_zero_points", run_q_zero_points},
    {"q_per_channel_axis", run_q_axis},
};

}  // namespace
}  // namespace quanta::conform
