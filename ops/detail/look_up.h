#pragma once

// Private: the operation that a table of codes is.

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "quanta/runtime/operation.h"

namespace quanta::detail {

/// Each byte of x through a table: what a plan makes of functions of one code. Not in the
/// catalogue, as no user calls it.
class LookUp final : public Op<LookUp> {
 public:
  static constexpr std::string_view kName = "look_up";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  LookUp() = default;
  explicit LookUp(std::shared_ptr<const ByteTable> given) : table(std::move(given)) {}

  void infer(const Arguments& in, Results& out) const override;
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override;
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override;
  std::span<const DType> cuda_dtypes() const noexcept override;
  PlanUse plan_use(const Arguments& in, std::span<const Tensor> out) const override;
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> other) const override;
  static std::span<const AttributeInfo> attribute_table();

  std::shared_ptr<const ByteTable> table;
};

}  // namespace quanta::detail
