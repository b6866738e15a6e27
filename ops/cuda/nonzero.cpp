#include "quanta/ops/cuda/nonzero.h"

#include <algorithm>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/dims.h"

namespace quanta::cuda {

Nonzero::Nonzero(Device device, DType dtype, const void* x, std::int64_t count) : device_(device) {
  params_.dtype = dtype;
  params_.x = x;
  params_.count = count;
  params_.tiles = ceil_div(count, kNonzeroTile);
  starts_ = Buffer(device, static_cast<std::size_t>(params_.tiles + 1) * sizeof(std::int64_t));
  params_.starts = starts_.as<std::int64_t>();
  count_nonzero_tiles(device, params_);
  add_up_tiles(device, params_);
}

std::int64_t Nonzero::total() const {
  std::int64_t total = 0;
  driver(device_).copy_to_host(&total, params_.starts + params_.tiles, sizeof(total));
  return total;
}

void Nonzero::write_places(const Dims& sizes, std::int64_t* places) const {
  NonzeroParams params = params_;
  params.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), params.sizes);
  params.places = places;
  place_nonzero(device_, params);
}

void Nonzero::write_numbers(std::int64_t* numbers) const {
  NonzeroParams params = params_;
  params.numbers = numbers;
  place_nonzero(device_, params);
}

}  // namespace quanta::cuda
