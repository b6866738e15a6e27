#include <optional>
#include <string>
#include <vector>

#include "calls.h"
#include "options.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/tensor.h"

namespace quanta::conform {
namespace {

Outputs run_contiguous(const Case& test) {
  const Tensor x = test.has_attr("permute") ? test.x().permute(test.dims("permute")) : test.x();
  return single(x.contiguous());
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

using CompareTensors = Tensor (*)(const Tensor&, const Tensor&);
using CompareNumber = Tensor (*)(const Tensor&, double);

// With `other` or the tensor `y`; with neither the tensor is compared with itself.
Runner comparison(CompareTensors tensors, CompareNumber number) {
  return [=](const Case& test) {
    if (test.has_attr("other")) return single(number(test.x(), test.number("other")));
    return single(tensors(test.x(), test.has_input("y") ? test.tensor("y") : test.x()));
  };
}

using ExtremeFull = Tensor (*)(const Tensor&);
using ExtremeAlong = ValuesIndices (*)(const Tensor&, std::int64_t, const ReduceOptions&);

Runner extreme(ExtremeFull full, ExtremeAlong along) {
  return if_given("dim", calls(along, {"x", "dim"}), calls(full, {"x"}));
}

Outputs run_split(const Case& test) {
  static const Runner kBySizes = calls(split_with_sizes, {"x", "split_size", "dim"});
  static const Runner kBySize = calls(split, {"x", "split_size", "dim"});
  return test.attr("split_size").is_array() ? kBySizes(test) : kBySize(test);
}

const auto kMean = overload<Tensor(const Tensor&, const Dims&, const ReduceOptions&)>(mean);
const auto kStd = overload<Tensor(const Tensor&, const Dims&, const StdOptions&)>(std);
const Parameter kAllDims{"dim", Json::array()};

// Methods with overloads, and some that are not called plainly.
Tensor squeeze(const Tensor& x, std::optional<std::int64_t> dim) {
  return dim ? x.squeeze(*dim) : x.squeeze();
}
Tensor clone(const Tensor& x) { return x.clone(); }
Tensor equal(const Tensor& x, const Tensor& y) {
  return Tensor::scalar(x.equal(y) ? 1.0 : 0.0, DType::Bool);
}

const Registration kOps{
    {"view", calls(&Tensor::view, {"x", "shape"})},
    {"reshape", calls(&Tensor::reshape, {"x", "shape"})},
    {"flatten", calls(&Tensor::flatten, {"x", {"start_dim", 0}, {"end_dim", -1}})},
    {"permute", calls(&Tensor::permute, {"x", "dims"})},
    {"transpose", calls(&Tensor::transpose, {"x", "dim0", "dim1"})},
    {"t", calls(&Tensor::t, {"x"})},
    {"select", calls(&Tensor::select, {"x", "dim", "index"})},
    {"slice", calls(&Tensor::slice, {"x", "dim", "start", "end", {"step", 1}})},
    {"narrow", calls(&Tensor::narrow, {"x", "dim", "start", "length"})},
    {"expand", calls(&Tensor::expand, {"x", "size"})},
    {"squeeze", calls(squeeze, {"x", "dim"})},
    {"unsqueeze", calls(&Tensor::unsqueeze, {"x", "dim"})},
    {"as_strided", calls(&Tensor::as_strided, {"x", "size", "stride", {"storage_offset", 0}})},
    {"clone", calls(clone, {"x"})},
    {"contiguous", run_contiguous},
    {"copy_", calls(&Tensor::copy_, {"x", "src"})},
    {"fill_", calls(&Tensor::fill_, {"x", "value"})},
    {"equal", calls(equal, {"x", "y"})},
    {"detach", calls(&Tensor::detach, {"x"})},
    {"resize_", calls(resize_, {"x", "size"})},
    {"stack", calls(stack, {"tensors", "dim"})},
    {"chunk", calls(chunk, {"x", "chunks", "dim"})},
    {"split", run_split},
    {"unbind", calls(unbind, {"x", "dim"})},
    {"flip", calls(flip, {"x", "dims"})},
    {"repeat", calls(repeat, {"x", "repeats"})},
    {"unfold", calls(unfold, {"x", "dimension", "size", "step"})},
    {"index_select", calls(index_select, {"x", "dim", "index"})},
    {"gather", calls(gather, {"x", "dim", "index"})},
    {"index", run_index},
    {"index_put_", run_index_put_in_place},
    {"masked_fill", calls(masked_fill, {"x", "mask", "value"})},
    {"masked_fill_", calls(masked_fill_, {"x", "mask", "value"})},
    {"where", calls(where, {"condition", "x", "y"})},
    {"eq", comparison(eq, eq)},
    {"ne", comparison(ne, ne)},
    {"lt", comparison(lt, lt)},
    {"le", comparison(le, le)},
    {"gt", comparison(gt, gt)},
    {"ge", comparison(ge, ge)},
    {"max", extreme(max, max)},
    {"min", extreme(min, min)},
    {"mean", calls(kMean, {"x", kAllDims})},
    {"std", calls(kStd, {"x", kAllDims})},
    {"sort", calls(sort, {"x"})},
    {"argsort", calls(argsort, {"x"})},
    {"msort", calls(msort, {"x"})},
    {"topk", calls(topk, {"x", "k"})},
    {"q_scale", calls(&QTensor::q_scale, {"x"})},
    {"q_zero_point", calls(&QTensor::q_zero_point, {"x"})},
    {"q_per_channel_scales", calls(&QTensor::q_per_channel_scales, {"x"})},
    {"q_per_channel_zero_points", calls(&QTensor::q_per_channel_zero_points, {"x"})},
    {"q_per_channel_axis", calls(&QTensor::q_per_channel_axis, {"x"})},
};

}  // namespace
}  // namespace quanta::conform
