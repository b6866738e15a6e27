#include "quanta/ops/compare/cuda_compare.h"

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
SIMT_DEVICE bool holds(Relation relation, T lhs, T rhs) {
  switch (relation) {
    case Relation::Equal:
      return lhs == rhs;
    case Relation::NotEqual:
      return lhs != rhs;
    case Relation::Less:
      return lhs < rhs;
    case Relation::LessEqual:
      return lhs <= rhs;
    case Relation::Greater:
      return lhs > rhs;
    case Relation::GreaterEqual:
      break;
  }
  return lhs >= rhs;
}

struct CompareItems {
  static constexpr const char* kName = "compare_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CompareParams;

  static SIMT_DEVICE bool result_of(const Params& p, std::int64_t lhs, std::int64_t rhs) {
    if (p.computed == DType::Int64) {
      return holds(p.relation, integer_at(p.lhs_dtype, p.lhs, lhs),
                   p.rhs == nullptr ? static_cast<std::int64_t>(p.number)
                                    : integer_at(p.rhs_dtype, p.rhs, rhs));
    }
    const double left = number_at(p.lhs_dtype, p.lhs, lhs);
    const double right = p.rhs == nullptr ? p.number : number_at(p.rhs_dtype, p.rhs, rhs);
    return p.computed == DType::Float64
               ? holds(p.relation, left, right)
               : holds(p.relation, static_cast<float>(left), static_cast<float>(right));
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[3];
    p.walk.places(i, at);
    p.out[at[0]] = result_of(p, at[1], at[2]);
  }
};

struct ChooseItems {
  static constexpr const char* kName = "choose_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ChooseParams;

  template <typename T>
  static SIMT_DEVICE void choose(const Params& p, const std::int64_t (&at)[4]) {
    static_cast<T*>(p.out)[at[0]] =
        p.condition[at[1]] ? static_cast<const T*>(p.x)[at[2]] : static_cast<const T*>(p.y)[at[3]];
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[4];
    p.walk.places(i, at);
    switch (p.item_bytes) {
      case 1:
        return choose<std::uint8_t>(p, at);
      case 2:
        return choose<std::uint16_t>(p, at);
      case 4:
        return choose<std::uint32_t>(p, at);
      default:
        return choose<std::uint64_t>(p, at);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void compare_items(Device device, const CompareParams& params) {
  simt::launch<CompareItems>(device, simt::grid_for(params.walk.count), params);
}
void choose_items(Device device, const ChooseParams& params) {
  simt::launch<ChooseItems>(device, simt::grid_for(params.walk.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
