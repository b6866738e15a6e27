// Constant, Range and their like: tensors that attributes and sizes decide.

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

Tensor floats(const std::vector<double>& values) {
  const std::vector<float> narrow(values.begin(), values.end());
  return Tensor::from_values(narrow, {static_cast<std::int64_t>(narrow.size())});
}

Outputs constant(const NodeCall& call) {
  if (call.has_attribute("value")) return {call.tensor("value").value};
  if (call.has_attribute("value_float")) return {Tensor::scalar(call.number("value_float"))};
  if (call.has_attribute("value_floats")) return {floats(call.number_list("value_floats", {}))};
  if (call.has_attribute("value_int")) {
    const std::int64_t value = call.integer("value_int");
    return {Tensor::from_int64({&value, 1}).view({})};
  }
  if (call.has_attribute("value_ints"))
    return {Tensor::from_int64(call.integer_list("value_ints"))};
  call.unsupported(
      "expected one of value, value_float, value_floats, value_int and value_ints; strings and "
      "sparse tensors are not supported");
}

// A large one stays one element that is read again and again: a file of a few bytes may ask for
// any size.
Outputs constant_of_shape(const NodeCall& call) {
  const Dims sizes = checked_sizes(call, "input", call.integers(0, "input"));
  Tensor value = Tensor::zeros({});
  if (call.has_attribute("value")) {
    value = call.tensor("value").value;
    if (value.numel() != 1) {
      call.fail(fmt::format("value: expected one element, got {}", value.numel()));
    }
    value = value.reshape({});
  }
  constexpr std::size_t kSmall = std::size_t{1} << 20;
  const Tensor whole = value.expand(sizes);
  return {storage_bytes(whole.dtype(), whole.numel()) <= kSmall
              ? whole.clone(MemoryFormat::Contiguous)
              : whole};
}

Outputs eye_like(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  if (x.dim() != 2) call.fail(fmt::format("input: expected 2 dimensions, got {}", x.sizes()));
  DType dtype = x.dtype();
  if (call.has_attribute("dtype")) {
    const auto type = static_cast<OnnxType>(call.integer("dtype"));
    const auto known = dtype_of(type);
    if (!known) call.unsupported("dtype: Quanta does not have " + to_string(type));
    dtype = *known;
  }
  const std::int64_t k = call.integer("k", 0);
  return {tril(triu(Tensor::ones(x.sizes(), dtype), k), k)};
}

constexpr std::int64_t kMaxRange = std::int64_t{1} << 28;

std::int64_t checked_count(const NodeCall& call, double count) {
  if (!(count <= static_cast<double>(kMaxRange))) {
    call.fail(fmt::format("limit: expected at most {} numbers, got {}", kMaxRange, count));
  }
  return count > 0.0 ? static_cast<std::int64_t>(count) : 0;
}

std::vector<std::int64_t> integer_range(const NodeCall& call) {
  const std::int64_t start = single_integer(call, 0, "start");
  const std::int64_t limit = single_integer(call, 1, "limit");
  const std::int64_t delta = single_integer(call, 2, "delta");
  if (delta == 0) call.fail("delta: expected a number other than 0, got 0");
  // Unsigned, as limit - start may not fit.
  const bool rises = delta > 0;
  if (rises ? start >= limit : start <= limit) return {};
  const std::uint64_t span =
      rises ? static_cast<std::uint64_t>(limit) - static_cast<std::uint64_t>(start)
            : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(limit);
  const std::uint64_t step = rises ? static_cast<std::uint64_t>(delta)
                                   : std::uint64_t{0} - static_cast<std::uint64_t>(delta);
  const std::uint64_t more = (span - 1) / step;
  const std::int64_t count = checked_count(call, static_cast<double>(more) + 1.0);
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(start) +
                                          i * static_cast<std::uint64_t>(delta));
  }
  return values;
}

// As bits, which Tensor::from_int64 holds, so that the numbers are a constant of a recording.
Tensor float_range(const NodeCall& call) {
  const auto number = [&](std::size_t i, std::string_view name) {
    const std::vector<double> values = call.numbers(i, name);
    if (values.size() != 1 || !std::isfinite(values[0])) {
      call.fail(
          fmt::format("{}: expected one finite number, got {}", name, fmt::join(values, ", ")));
    }
    return values[0];
  };
  const double start = number(0, "start");
  const double limit = number(1, "limit");
  const double delta = number(2, "delta");
  if (delta == 0.0) call.fail("delta: expected a number other than 0, got 0");
  const std::int64_t count = checked_count(call, std::ceil((limit - start) / delta));
  std::vector<std::int64_t> bits(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = std::bit_cast<std::int64_t>(start + static_cast<double>(i) * delta);
  }
  return Tensor::from_int64(bits).bit_cast(DType::Float64);
}

Outputs range(const NodeCall& call) {
  const Tensor& start = call.input(0, "start");
  const Tensor values =
      start.is_floating_point() ? float_range(call) : Tensor::from_int64(integer_range(call));
  return {values.to(start.dtype())};
}

}  // namespace

void add_create_ops(OpTable& table) {
  const auto add = [&table](std::string_view name, Outputs (*evaluate)(const NodeCall&)) {
    table.add({.name = name, .evaluate = evaluate, .widens = false});
  };
  add("Constant", constant);
  add("ConstantOfShape", constant_of_shape);
  add("EyeLike", eye_like);
  add("Range", range);
}

}  // namespace quanta::graph
