#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/detail/affine_parameters.h"
#include "quanta/nn/aimet/detail/state.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

constexpr std::string_view kName = "GroupedBlockQuantizeDequantize";

// -1 replaced by all blocks of the axis.
Dims checked_grouping(const GroupedBlockOptions& options, const Dims& shape) {
  Dims grouping = options.block_grouping;
  if (grouping.empty()) grouping = Dims::filled(shape.size(), 1);
  QUANTA_CHECK(grouping.size() == shape.size(),
               "{}: block_grouping: expected one entry for each dimension of {}, got {}", kName,
               shape, grouping);
  for (std::size_t d = 0; d < grouping.size(); ++d) {
    if (grouping[d] == -1) grouping[d] = shape[d];
    QUANTA_CHECK(grouping[d] > 0 && shape[d] % grouping[d] == 0,
                 "{}: block_grouping: expected -1 or entries that divide {}, got {}", kName, shape,
                 options.block_grouping);
  }
  return grouping;
}

const AffineQuantizerOptions& checked(const GroupedBlockOptions& options) {
  const AffineQuantizerOptions& quantizer = options.quantizer;
  QUANTA_CHECK(quantizer.symmetric.value_or(true), "{}: symmetric: expected true, got {}", kName,
               false);
  QUANTA_CHECK(quantizer.bitwidth.has_value(), "{}: bitwidth: expected a number, got {}", kName,
               "nothing");
  QUANTA_CHECK(options.decompressed_bw >= *quantizer.bitwidth && options.decompressed_bw <= 32,
               "{}: decompressed_bw: expected {}..32 (at least the bitwidth), got {}", kName,
               *quantizer.bitwidth, options.decompressed_bw);
  return quantizer;
}

}  // namespace

GroupedBlockQuantizeDequantize::GroupedBlockQuantizeDequantize(const GroupedBlockOptions& options)
    : QuantizeDequantize(kName, checked(options)),
      decompressed_bw_(options.decompressed_bw),
      block_grouping_(checked_grouping(options, shape_)) {}

void GroupedBlockQuantizeDequantize::require_settings(const Grid& grid, bool symmetric) const {
  checked({{.bitwidth = grid.bitwidth(), .symmetric = symmetric}, decompressed_bw_});
}

std::shared_ptr<Quantizer> GroupedBlockQuantizeDequantize::clone() const {
  return detail::clone_of(*this);
}

void GroupedBlockQuantizeDequantize::save_state(StateDict& state, const std::string& prefix) const {
  QuantizeDequantize::save_state(state, prefix);
  detail::save_number(state, prefix, "decompressed_bw", static_cast<double>(decompressed_bw_));
  detail::save_dims(state, prefix, "block_grouping", block_grouping_);
}

void GroupedBlockQuantizeDequantize::load_state(nn::StateReader& reader) {
  QuantizeDequantize::load_state(reader);
  GroupedBlockOptions options{};
  options.decompressed_bw =
      detail::read_integer(reader, "decompressed_bw").value_or(decompressed_bw_);
  options.block_grouping = detail::read_dims(reader, "block_grouping").value_or(block_grouping_);
  // What is missing was noted by now.
  const auto read = [&](std::string_view name, std::int64_t otherwise) {
    const bool has = reader.find(detail::extra_name(name)) != nullptr;
    return has ? detail::read_integer(reader, name).value_or(otherwise) : otherwise;
  };
  try {
    options.quantizer.symmetric = read("symmetric", 1) != 0;
    options.quantizer.bitwidth =
        Grid(read("qmin", grid().qmin()), read("qmax", grid().qmax())).bitwidth();
    checked(options);
    const Dims grouping = checked_grouping(options, shape_);
    reader.on_commit([this, grouping, bits = options.decompressed_bw] {
      block_grouping_ = grouping;
      decompressed_bw_ = bits;
    });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(detail::extra_name("block_grouping")),
                               error.what()));
  }
}

GroupedBlockQuantizeDequantize::Groups GroupedBlockQuantizeDequantize::groups_of(
    const Tensor& raw) const {
  const auto most = static_cast<float>(std::int64_t{1} << (decompressed_bw_ - bitwidth()));
  Dims group_sizes = shape_;
  for (std::size_t d = 0; d < shape_.size(); ++d) group_sizes[d] /= block_grouping_[d];

  const Tensor values = raw.detach().contiguous();
  const auto* from = values.data<float>();
  Groups groups{Tensor::full(group_sizes, 0.0), Tensor::empty(shape_), Tensor::empty(shape_)};
  auto* channel = static_cast<float*>(groups.per_channel.data_ptr());
  auto* whole = static_cast<float*>(groups.int_scale.data_ptr());
  auto* scale = static_cast<float*>(groups.scale.data_ptr());
  const cpu::AffineRows rows(
      quanta::detail::affine_layout(kName, "block_grouping", shape_, group_sizes, block_grouping_));
  // visit(block, group)
  const auto for_each = [&](auto&& visit) {
    rows.for_each_run(0, rows.count(),
                      [&](std::int64_t first, std::int64_t count, std::int64_t at) {
                        for (std::int64_t row = 0; row < count; ++row) {
                          for (std::int64_t i = 0; i < rows.length(); ++i) {
                            visit((first + row) * rows.length() + i,
                                  at + row * rows.run_stride() + i * rows.step());
                          }
                        }
                      });
  };
  for_each([&](std::int64_t block, std::int64_t group) {
    channel[group] = std::max(channel[group], from[block] / most);
  });
  for_each([&](std::int64_t block, std::int64_t group) {
    const float steps = math::round_half_even(from[block] / channel[group]);
    whole[block] = math::clamp(steps, 1.0F, most);
    scale[block] = whole[block] * channel[group];
  });
  return groups;
}

Tensor GroupedBlockQuantizeDequantize::final_scale(const Tensor& raw) const {
  return detail::straight_through(raw, groups_of(raw).scale);
}

EncodingPtr GroupedBlockQuantizeDequantize::make_encoding(const Tensor& raw_scale,
                                                          const Tensor& offset) const {
  const Groups groups = groups_of(raw_scale);
  return std::make_shared<GroupedBlockEncoding>(
      detail::straight_through(raw_scale, groups.scale), offset, grid(), block_size_,
      GroupedBlockEncoding::Groups{block_grouping_, decompressed_bw_, groups.per_channel,
                                   groups.int_scale});
}

namespace {

// The raw scales that an encoding was made from are not kept; its own parts are.
std::optional<GroupedBlockEncoding::Groups> groups_in(const EncodingPtr& encoding) {
  if (encoding == nullptr) return std::nullopt;
  return static_cast<const GroupedBlockEncoding&>(*encoding).groups();
}

}  // namespace

std::optional<Tensor> GroupedBlockQuantizeDequantize::per_channel_scale() const {
  const auto groups = groups_in(encoding());
  if (!groups.has_value()) return std::nullopt;
  return groups->per_channel_scale;
}

std::optional<Tensor> GroupedBlockQuantizeDequantize::per_block_int_scale() const {
  const auto groups = groups_in(encoding());
  if (!groups.has_value()) return std::nullopt;
  return groups->per_block_int_scale;
}

}  // namespace quanta::aimet
