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

Outputs run_unsqueeze(const Case& test) {
  return single(test.x().unsqueeze(test.integer("dim")));
}

Outputs run_as_strided(const Case& test) {
  const std::int64_t offset =
      test.has_attr("storage_offset") ? test.integer("storage_offset") : 0;
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
    {"q_scale", run_q_scale},
    {"q_zero_point", run_q_zero_point},
    {"q_per_channel_scales", run_q_scales},
    {"q_per_channel_zero_points", run_q_zero_points},
    {"q_per_channel_axis", run_q_axis},
};

}  // namespace
}  // namespace quanta::conform
