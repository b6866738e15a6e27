#include "quanta/ops/cuda/sort.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cuda {
namespace {

int bits_of(std::int64_t number) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(number)));
}

SortParams first_pass(const SortCall& call) {
  SortParams pass;
  pass.dtype = call.dtype;
  pass.descending = call.descending;
  pass.x = call.x;
  pass.x_length = call.length;
  pass.rows = call.rows;
  pass.length = call.length;
  pass.key_bits = call.key_bits > 0 ? call.key_bits : 8 * static_cast<int>(item_size(call.dtype));
  pass.position_bits = bits_of(call.length);
  pass.kind = pass.key_bits + pass.position_bits <= 64 ? SortItems::Packed : SortItems::Pairs;
  if (call.slice >= 0) {
    pass.kind = SortItems::Slices;
    pass.slice = call.slice;
  }
  return pass;
}

class Sorting {
 public:
  Sorting(Device device, const SortCall& call)
      : device_(device), call_(call), pass_(first_pass(call)) {}

  void run() {
    if (call_.keep <= kSortTile / 2) {
      while (pass_.length > kSortTile) keep_best_of_tiles();
    }
    if (pass_.length <= kSortTile) {
      pass_.span =
          static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(pass_.length)));
      to_results();
      sort_tiles(device_, pass_);
      return;
    }
    pass_.span = kSortTile;
    pass_.keep = kSortTile;
    to_items(pass_.length);
    sort_tiles(device_, pass_);
    pass_.keep = pass_.length;
    for (;; pass_.span *= 2) {
      take_items();
      const bool is_last = 2 * pass_.span >= pass_.length;
      is_last ? to_results() : to_items(pass_.length);
      merge_runs(device_, pass_);
      if (is_last) return;
    }
  }

 private:
  std::size_t item_bytes() const { return pass_.kind == SortItems::Pairs ? 16 : 8; }

  void to_results() {
    pass_.keep = call_.keep;
    pass_.to_length = call_.keep;
    pass_.to = nullptr;
    pass_.values = call_.values;
    pass_.positions = call_.positions;
  }
  void to_items(std::int64_t length) {
    const std::size_t bytes = static_cast<std::size_t>(pass_.rows * length) * item_bytes();
    if (written_.bytes() < bytes) written_ = Buffer(device_, bytes);
    pass_.to_length = length;
    pass_.to = written_.as<void>();
  }
  // What was written last is read next.
  void take_items() {
    std::swap(written_, read_);
    pass_.from = read_.as<void>();
  }

  void keep_best_of_tiles() {
    pass_.span = kSortTile;
    pass_.keep = call_.keep;
    const std::int64_t before = (pass_.length - 1) / kSortTile;
    to_items(before * call_.keep + std::min(call_.keep, pass_.length - before * kSortTile));
    sort_tiles(device_, pass_);
    pass_.length = pass_.to_length;
    take_items();
  }

  Device device_;
  const SortCall& call_;
  SortParams pass_;
  Buffer written_, read_;
};

}  // namespace

void sort_rows(Device device, const SortCall& call) { Sorting(device, call).run(); }

}  // namespace quanta::cuda
