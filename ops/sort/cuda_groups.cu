#include "quanta/ops/sort/cuda_groups.h"

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/order_math.h"

namespace quanta::cuda {
namespace {

struct MarkHeads {
  static constexpr const char* kName = "mark_heads";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = HeadParams;

  static SIMT_DEVICE bool differ(const Params& p, std::int64_t a, std::int64_t b) {
    bool differs = false;
    visit_ordered(p.dtype, [&](auto zero) {
      const auto* const left = static_cast<const decltype(zero)*>(p.x) + a * p.slice;
      const auto* const right = static_cast<const decltype(zero)*>(p.x) + b * p.slice;
      for (std::int64_t i = 0; i < p.slice && !differs; ++i) {
        differs = math::order_key(left[i]) != math::order_key(right[i]);
      }
    });
    return differs;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    p.heads[i] = i == 0 || differ(p, p.order[i - 1], p.order[i]) ? 1 : 0;
  }
};

struct DescribeGroups {
  static constexpr const char* kName = "describe_groups";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GroupParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t group = simt::global_thread();
    if (group >= p.groups) return;
    const std::int64_t head = p.heads[group];
    const std::int64_t end = group + 1 < p.groups ? p.heads[group + 1] : p.count;
    const std::int64_t to = p.ranks == nullptr ? group : p.ranks[group];
    p.first[to] = p.order[head];
    if (p.counts != nullptr) p.counts[to] = end - head;
  }
};

struct RankGroups {
  static constexpr const char* kName = "rank_groups";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GroupParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.groups) p.ranks[p.by_rank[i]] = i;
  }
};

struct NumberSlices {
  static constexpr const char* kName = "number_slices";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GroupParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const std::int64_t group = p.numbers[i];
    p.inverse[p.order[i]] = p.ranks == nullptr ? group : p.ranks[group];
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void mark_heads(Device device, const HeadParams& params) {
  simt::launch<MarkHeads>(device, simt::grid_for(params.count), params);
}
void describe_groups(Device device, const GroupParams& params) {
  simt::launch<DescribeGroups>(device, simt::grid_for(params.groups), params);
}
void rank_groups(Device device, const GroupParams& params) {
  simt::launch<RankGroups>(device, simt::grid_for(params.groups), params);
}
void number_slices(Device device, const GroupParams& params) {
  simt::launch<NumberSlices>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
