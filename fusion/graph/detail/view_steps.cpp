#include "quanta/fusion/graph/detail/view_steps.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace quanta::graph::detail {
namespace {

using Numbers = std::vector<std::int64_t>;
using Kind = ViewStep::Kind;

/// Notes steps that change something; a Reshape of a Reshape is one.
class Steps {
 public:
  explicit Steps(const Dims& sizes) : sizes_(sizes) {}

  const Dims& sizes() const { return sizes_; }
  std::vector<ViewStep> take() { return std::move(steps_); }

  void reshape(const Dims& sizes) {
    if (sizes == sizes_) return;
    if (!steps_.empty() && steps_.back().kind == Kind::Reshape) {
      steps_.pop_back();
      sizes_ = before_;
      if (sizes == sizes_) return;
    }
    add({.kind = Kind::Reshape, .numbers = sizes.to_vector(), .sizes = sizes});
  }
  void transpose(const Numbers& order) {
    if (std::ranges::is_sorted(order)) return;
    Dims sizes;
    for (const std::int64_t d : order) sizes.push_back(sizes_[static_cast<std::size_t>(d)]);
    // Only what has more than one element moves anything.
    Numbers moving;
    for (const std::int64_t d : order) {
      if (sizes_[static_cast<std::size_t>(d)] > 1) moving.push_back(d);
    }
    if (std::ranges::is_sorted(moving)) return reshape(sizes);
    add({.kind = Kind::Transpose, .numbers = order, .sizes = sizes});
  }
  void slice(const Numbers& begins, const Numbers& counts, const Numbers& steps) {
    ViewStep step{.kind = Kind::Slice, .numbers = begins, .steps = steps};
    bool is_all = true;
    for (std::size_t d = 0; d < begins.size(); ++d) {
      step.ends.push_back(begins[d] + (counts[d] - 1) * steps[d] + 1);
      step.sizes.push_back(counts[d]);
      is_all = is_all && counts[d] == sizes_[d];
    }
    if (!is_all) add(std::move(step));
  }
  void expand(const Dims& sizes) {
    if (sizes != sizes_) {
      add({.kind = Kind::Expand, .numbers = sizes.to_vector(), .sizes = sizes});
    }
  }
  void gather(Numbers positions, const Dims& sizes) {
    add({.kind = Kind::Gather, .numbers = std::move(positions), .sizes = sizes});
  }

 private:
  void add(ViewStep step) {
    before_ = sizes_;
    sizes_ = step.sizes;
    steps_.push_back(std::move(step));
  }

  Dims sizes_;
  Dims before_;
  std::vector<ViewStep> steps_;
};

/// A dimension that has more than one element, in memory.
struct Axis {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::size_t dim = 0;  ///< where it stands in its tensor
};

std::vector<Axis> axes_of(const Layout& layout) {
  std::vector<Axis> axes;
  for (std::size_t d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] != 1 && layout.strides[d] != 0) {
      axes.push_back({layout.sizes[d], layout.strides[d], d});
    }
  }
  return axes;
}

bool is_outer(const Axis& a, const Axis& b) { return a.stride > b.stride; }

/// What a view takes of a tensor with these axes, whose slices have one element where the view has
/// none.
struct Taken {
  Numbers begins, counts, steps;
  std::vector<std::size_t> axis_of;  ///< for each axis of the view
};

/// Each axis of the view runs along one of the base.
std::optional<Taken> along_axes(std::vector<Axis> base, const std::vector<Axis>& view,
                                std::int64_t offset) {
  std::ranges::stable_sort(base, is_outer);
  Taken taken{Numbers(base.size()), Numbers(base.size(), 1), Numbers(base.size(), 1), {}};
  for (std::size_t a = 0; a < base.size(); ++a) {
    taken.begins[a] = offset / base[a].stride;
    offset %= base[a].stride;
  }
  if (offset != 0) return {};
  std::vector<bool> used(base.size(), false);
  for (const Axis& axis : view) {
    std::size_t a = 0;
    while (a < base.size() && base[a].stride > axis.stride) ++a;
    if (a == base.size() || used[a] || axis.stride % base[a].stride != 0) return {};
    const std::int64_t step = axis.stride / base[a].stride;
    if (taken.begins[a] + (axis.size - 1) * step >= base[a].size) return {};
    used[a] = true;
    taken.counts[a] = axis.size;
    taken.steps[a] = step;
    taken.axis_of.push_back(a);
  }
  return taken;
}

/// Memory as axes of the view's own strides: what it takes of each is a range.
std::vector<Axis> split_memory(std::vector<Axis> view, std::int64_t elements) {
  std::ranges::stable_sort(view, is_outer);
  std::vector<Axis> axes;
  std::int64_t rest = elements;
  for (const Axis& axis : view) {
    if (rest % axis.stride != 0 || rest == axis.stride) return {};
    axes.push_back({rest / axis.stride, axis.stride, axes.size()});
    rest = axis.stride;
  }
  if (rest > 1 || axes.empty()) axes.push_back({rest, 1, axes.size()});
  return axes;
}

Dims sizes_of(const std::vector<Axis>& axes) {
  Dims sizes;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  return sizes;
}

/// The dimensions of a dense tensor in the order in which they lie in memory.
Numbers memory_order(const Layout& base) {
  // Dimensions of one element stay where they are.
  Numbers moving;
  for (std::size_t d = 0; d < base.sizes.size(); ++d) {
    if (base.sizes[d] != 1) moving.push_back(static_cast<std::int64_t>(d));
  }
  std::ranges::stable_sort(moving, [&](std::int64_t a, std::int64_t b) {
    return base.strides[static_cast<std::size_t>(a)] > base.strides[static_cast<std::size_t>(b)];
  });
  Numbers result;
  std::size_t next = 0;
  for (std::size_t d = 0; d < base.sizes.size(); ++d) {
    result.push_back(base.sizes[d] == 1 ? static_cast<std::int64_t>(d) : moving[next++]);
  }
  return result;
}

/// From what was taken, with `axes` in the order of memory, to the view.
void finish(Steps& steps, const std::vector<Axis>& view_axes, const Taken& taken,
            const Layout& view) {
  // Axes that are left, in the order of memory.
  std::vector<std::size_t> left(view_axes.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::ranges::stable_sort(
      left, [&](std::size_t a, std::size_t b) { return taken.axis_of[a] < taken.axis_of[b]; });
  Dims sizes;
  for (const std::size_t a : left) sizes.push_back(view_axes[a].size);
  Numbers order(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) order[left[i]] = static_cast<std::int64_t>(i);
  if (!std::ranges::is_sorted(order)) {
    steps.reshape(sizes);
    steps.transpose(order);
  }
  Dims ones = view.sizes;
  for (std::size_t d = 0; d < ones.size(); ++d) {
    if (view.strides[d] == 0) ones[d] = 1;
  }
  steps.reshape(ones);
  steps.expand(view.sizes);
}

Numbers positions_of(const Layout& view, std::int64_t offset) {
  Numbers positions{offset};
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    Numbers next;
    next.reserve(positions.size() * static_cast<std::size_t>(view.sizes[d]));
    for (const std::int64_t position : positions) {
      for (std::int64_t i = 0; i < view.sizes[d]; ++i) {
        next.push_back(position + i * view.strides[d]);
      }
    }
    positions = std::move(next);
  }
  return positions;
}

}  // namespace

std::vector<ViewStep> view_steps(const Layout& base, const Layout& view) {
  const std::int64_t offset = view.offset - base.offset;
  Steps steps(base.sizes);
  const std::vector<Axis> base_axes = axes_of(base);
  const std::vector<Axis> view_axes = axes_of(view);
  if (const std::optional<Taken> taken = along_axes(base_axes, view_axes, offset)) {
    // In the base's own dimensions; axes come sorted by stride out of along_axes.
    std::vector<Axis> sorted = base_axes;
    std::ranges::stable_sort(sorted, is_outer);
    Numbers begins(base.sizes.size(), 0);
    Numbers counts(base.sizes.size(), 1);
    Numbers strides(base.sizes.size(), 1);
    for (std::size_t a = 0; a < sorted.size(); ++a) {
      begins[sorted[a].dim] = taken->begins[a];
      counts[sorted[a].dim] = taken->counts[a];
      strides[sorted[a].dim] = taken->steps[a];
    }
    steps.slice(begins, counts, strides);
    Taken in_dims = *taken;
    for (std::size_t& a : in_dims.axis_of) a = sorted[a].dim;
    finish(steps, view_axes, in_dims, view);
    return steps.take();
  }
  steps.transpose(memory_order(base));
  const std::int64_t elements =
      std::accumulate(base.sizes.begin(), base.sizes.end(), std::int64_t{1}, std::multiplies<>());
  const std::vector<Axis> axes = split_memory(view_axes, elements);
  const std::optional<Taken> taken =
      axes.empty() ? std::nullopt : along_axes(axes, view_axes, offset);
  if (taken) {
    steps.reshape(sizes_of(axes));
    steps.slice(taken->begins, taken->counts, taken->steps);
    finish(steps, view_axes, *taken, view);
  } else {
    steps.reshape({elements});
    steps.gather(positions_of(view, offset), view.sizes);
  }
  return steps.take();
}

}  // namespace quanta::graph::detail
