#include "quanta/ops/sort/cuda_groups.h"

#include <bit>

#include "quanta/ops/cuda/sort.h"
#include "quanta/runtime/dims.h"

namespace quanta::cuda {
namespace {

Buffer numbers(Device device, std::int64_t count) {
  return {device, static_cast<std::size_t>(count) * sizeof(std::int64_t)};
}

Buffer sorted_slices(Device device, DType dtype, const void* x, std::int64_t count,
                     std::int64_t slice) {
  Buffer order = numbers(device, count);
  SortCall call;
  call.dtype = dtype;
  call.x = x;
  call.length = count;
  call.keep = count;
  if (slice != 1) call.slice = slice;
  call.positions = order.as<std::int64_t>();
  sort_rows(device, call);
  return order;
}

Buffer marked_heads(Device device, const HeadParams& of) {
  Buffer flags(device, static_cast<std::size_t>(of.count));
  HeadParams params = of;
  params.heads = flags.as<std::uint8_t>();
  mark_heads(device, params);
  return flags;
}

}  // namespace

Groups::Groups(Device device, DType dtype, const void* x, std::int64_t count, std::int64_t slice)
    : device_(device),
      count_(count),
      order_(sorted_slices(device, dtype, x, count, slice)),
      flags_(marked_heads(device, {.dtype = dtype,
                                   .x = x,
                                   .slice = slice,
                                   .count = count,
                                   .order = order_.as<std::int64_t>()})),
      heads_(device, DType::UInt8, flags_.as<void>(), count) {}

void Groups::write(std::int64_t groups, Order order, std::int64_t* first, std::int64_t* counts,
                   std::int64_t* inverse) const {
  const Buffer heads = numbers(device_, groups);
  const Buffer of_slices = numbers(device_, count_);
  heads_.write_places({count_}, heads.as<std::int64_t>());
  heads_.write_numbers(of_slices.as<std::int64_t>());
  GroupParams params;
  params.count = count_;
  params.groups = groups;
  params.order = order_.as<std::int64_t>();
  params.heads = heads.as<std::int64_t>();
  params.numbers = of_slices.as<std::int64_t>();
  Buffer by_value, by_rank, ranks;
  if (order == Order::ByFirst) {
    by_value = numbers(device_, groups);
    by_rank = numbers(device_, groups);
    ranks = numbers(device_, groups);
    params.first = by_value.as<std::int64_t>();
    describe_groups(device_, params);
    SortCall call;
    call.dtype = DType::Int64;
    call.x = by_value.as<void>();
    call.length = groups;
    call.keep = groups;
    call.key_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count_)));
    call.positions = by_rank.as<std::int64_t>();
    sort_rows(device_, call);
    params.by_rank = by_rank.as<std::int64_t>();
    params.ranks = ranks.as<std::int64_t>();
    rank_groups(device_, params);
  }
  params.first = first;
  params.counts = counts;
  params.inverse = inverse;
  describe_groups(device_, params);
  number_slices(device_, params);
}

}  // namespace quanta::cuda
