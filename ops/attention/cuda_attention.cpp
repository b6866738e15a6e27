#include "quanta/ops/attention/cuda_attention.h"

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cuda {
namespace {

// Blocks that keep a large GPU busy; fewer are made of fewer queries each.
constexpr std::int64_t kWantedBlocks = 256;
constexpr std::int64_t kFewestQueries = 16;

}  // namespace

void attention(Device device, const cpu::AttentionShape& shape, const AttentionOperands& operands) {
  AttentionParams params{
      .shape = shape, .operands = operands, .span = cpu::attention_block_queries(shape.keys)};
  params.block = params.span;
  const auto blocks = [&] {
    return shape.batch * shape.heads * ceil_div(shape.queries, params.block);
  };
  while (params.block > kFewestQueries &&
         (params.block / 2 >= shape.queries || blocks() < kWantedBlocks)) {
    params.block /= 2;
  }
  attend_queries(device, params);
}

}  // namespace quanta::cuda
