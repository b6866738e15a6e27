#include "quanta/ops/attention/cuda_attention.h"

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cuda {
namespace {

// Blocks that keep a large GPU busy; fewer are made of fewer queries each.
constexpr std::int64_t kWantedBlocks = 256;
constexpr std::int64_t kFewestQueries = 16;

}  // namespace

void attention(Device device, const cpu::AttentionProblem& problem) {
  AttentionParams params{.problem = problem, .span = cpu::attention_block_queries(problem.keys)};
  params.block = params.span;
  const auto blocks = [&] {
    return problem.batch * problem.heads * ceil_div(problem.queries, params.block);
  };
  while (params.block > kFewestQueries &&
         (params.block / 2 >= problem.queries || blocks() < kWantedBlocks)) {
    params.block /= 2;
  }
  attend_queries(device, params);
}

}  // namespace quanta::cuda
