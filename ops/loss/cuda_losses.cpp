#include "quanta/ops/loss/cuda_losses.h"

#include <algorithm>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/sum_order.h"

namespace quanta::cuda {

LossSums::LossSums(Device device, std::int64_t terms)
    : device_(device),
      count_(ceil_div(terms, detail::kBlockTerms)),
      parts_(device, static_cast<std::size_t>(std::max<std::int64_t>(1, count_)) * sizeof(double)) {
}

void LossSums::join(JoinLossParams params) const {
  params.parts = parts();
  params.count = count_;
  join_loss_parts(device_, params);
}

}  // namespace quanta::cuda
