#include "quanta/ops/detail/look_up.h"

#include <array>

#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cuda/codes.h"

namespace quanta::detail {

void LookUp::infer(const Arguments& in, Results& out) const {
  require_tensor(kName, "x", in[0], {DType::QUInt8, DType::QInt8});
  const MemoryFormat format = in[0].suggested_format();
  out.arrange(0, format);
  out.add_like(in[0], in[0].sizes(), format);
}

std::string_view LookUp::cpu(const Arguments& in, std::span<const Tensor> out) const {
  cpu::map_bytes(in[0], out[0], *table);
  return "lookup";
}

std::string_view LookUp::cuda(const Arguments& in, std::span<const Tensor> out) const {
  cuda::look_up(in[0], out[0], *table);
  return "look_up_codes";
}

std::span<const DType> LookUp::cuda_dtypes() const noexcept {
  static constexpr std::array kTypes{DType::QUInt8, DType::QInt8};
  return kTypes;
}

PlanUse LookUp::plan_use(const Arguments&, std::span<const Tensor>) const {
  return {.in_place = true, .table = table};
}

std::shared_ptr<const Operation> LookUp::with_table(std::shared_ptr<const ByteTable> other) const {
  return std::make_shared<LookUp>(std::move(other));
}

std::span<const AttributeInfo> LookUp::attribute_table() {
  static constexpr std::array kTable{
      read_only_attribute<LookUp, [](const LookUp& op) { return op.table; }>("table")};
  return kTable;
}

}  // namespace quanta::detail
