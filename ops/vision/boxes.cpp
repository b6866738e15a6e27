#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/vision.h"
#include "quanta/ops/vision/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace vision {
namespace {

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

// Regions ---------------------------------------------------------------------------------------

/// Four elements of a plane and their weights.
template <typename T>
struct Corners {
  std::array<std::int64_t, 4> index{};
  std::array<T, 4> weight{};
};

/// A point of a plane; one that is more than an element outside counts as 0.
template <typename T>
Corners<T> corners_at(T y, T x, std::int64_t height, std::int64_t width) {
  Corners<T> corners;
  const auto inside = [](T position, std::int64_t length) {
    return position >= T{-1} && position <= static_cast<T>(length);
  };
  if (!inside(y, height) || !inside(x, width)) return corners;
  const auto place = [](T position, std::int64_t length, std::array<std::int64_t, 2>& index) {
    position = std::max(position, T{0});
    index[0] = std::min(static_cast<std::int64_t>(position), length - 1);
    index[1] = std::min(index[0] + 1, length - 1);
    return index[0] == length - 1 ? T{0} : position - static_cast<T>(index[0]);
  };
  std::array<std::int64_t, 2> rows{};
  std::array<std::int64_t, 2> columns{};
  const T down = place(y, height, rows);
  const T right = place(x, width, columns);
  corners.index = {rows[0] * width + columns[0], rows[0] * width + columns[1],
                   rows[1] * width + columns[0], rows[1] * width + columns[1]};
  corners.weight = {(T{1} - down) * (T{1} - right), (T{1} - down) * right, down * (T{1} - right),
                    down * right};
  return corners;
}

/// More points than any image has elements: from regions of a size that no image has.
constexpr std::int64_t kMaxPoints = std::int64_t{1} << 16;

struct RoiAlign final : Op<RoiAlign> {
  static constexpr std::string_view kName = "roi_align";
  static constexpr ArgumentCount kArguments{3};
  RoiAlignOptions options;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    require_tensor(kName, "x", x, {DType::Float32, DType::Float64});
    require_tensor(kName, "rois", in[1], {x.dtype()});
    detail::check_indices(kName, "batch", in[2]);
    QUANTA_CHECK(x.dim() == 4, "{}: x: expected 4 dimensions, got {}", kName, x.sizes());
    QUANTA_CHECK(x.size(2) > 0 && x.size(3) > 0, "{}: x: expected spatial sizes > 0, got {}", kName,
                 x.sizes());
    QUANTA_CHECK(in[1].dim() == 2 && in[1].size(1) == 4, "{}: rois: expected [R, 4], got {}", kName,
                 in[1].sizes());
    QUANTA_CHECK(in[2].sizes() == Dims{in[1].size(0)}, "{}: batch: expected [{}], got {}", kName,
                 in[1].size(0), in[2].sizes());
    QUANTA_CHECK(options.output_height > 0 && options.output_width > 0,
                 "{}: output_height: expected sizes > 0, got {} and {}", kName,
                 options.output_height, options.output_width);
    QUANTA_CHECK(options.sampling_ratio >= 0 && options.sampling_ratio <= kMaxPoints,
                 "{}: sampling_ratio: expected 0..{}, got {}", kName, kMaxPoints,
                 options.sampling_ratio);
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add({in[1].size(0), x.size(1), options.output_height, options.output_width}, x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor batch = detail::int64_indices(kName, "batch", in[2]);
    const auto* image = static_cast<const std::int64_t*>(batch.data_ptr());
    const Dims& sizes = in[0].sizes();
    for (std::int64_t r = 0; r < batch.numel(); ++r) {
      QUANTA_CHECK(image[r] >= 0 && image[r] < sizes[0], "{}: batch: expected 0..{}, got {}", kName,
                   sizes[0] - 1, image[r]);
    }
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* src = static_cast<const T*>(in[0].data_ptr());
      const auto* rois = static_cast<const T*>(in[1].data_ptr());
      auto* dst = static_cast<T*>(out[0].data_ptr());
      const std::int64_t result = out[0].numel() / batch.numel();
      parallel_for(batch.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          align(src + image[r] * sizes[1] * sizes[2] * sizes[3], sizes, rois + 4 * r,
                dst + r * result);
        }
      });
    });
    return "points";
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = RoiAlign;
    using Options = RoiAlignOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::output_height>("output_height"),
        attribute<Self, &Self::options, &Options::output_width>("output_width"),
        attribute<Self, &Self::options, &Options::sampling_ratio>("sampling_ratio"),
        attribute<Self, &Self::options, &Options::spatial_scale>("spatial_scale"),
        attribute<Self, &Self::options, &Options::half_pixel>("half_pixel"),
        attribute<Self, &Self::options, &Options::takes_maximum>("takes_maximum")};
    return kTable;
  }

 private:
  /// Where the points of a region lie along one dimension.
  template <typename T>
  struct Points {
    T start;
    T bin;
    std::int64_t count;  ///< of a bin

    T position(std::int64_t of_bin, std::int64_t i) const {
      return start + static_cast<T>(of_bin) * bin +
             (static_cast<T>(i) + T(0.5)) * bin / static_cast<T>(count);
    }
  };

  template <typename T>
  Points<T> points(T from, T to, std::int64_t bins) const {
    const T scale = static_cast<T>(options.spatial_scale);
    const T offset = options.half_pixel ? T(0.5) : T{0};
    const T start = from * scale - offset;
    T length = to * scale - offset - start;
    if (!options.half_pixel) length = std::max(length, T{1});
    const T bin = length / static_cast<T>(bins);
    std::int64_t count = options.sampling_ratio;
    if (count == 0) {
      const T needed = std::ceil(bin);
      QUANTA_CHECK(!(needed > static_cast<T>(kMaxPoints)) && needed == needed,
                   "{}: rois: expected regions of at most {} elements a bin, got {}", kName,
                   kMaxPoints, needed);
      count = std::max<std::int64_t>(0, static_cast<std::int64_t>(needed));
    }
    return {start, bin, count};
  }

  template <typename T>
  void align(const T* image, const Dims& sizes, const T* roi, T* to) const {
    const std::int64_t height = sizes[2];
    const std::int64_t width = sizes[3];
    const Points<T> rows = points(roi[1], roi[3], options.output_height);
    const Points<T> columns = points(roi[0], roi[2], options.output_width);
    const std::int64_t bins = options.output_height * options.output_width;
    std::vector<Corners<T>> corners(at(rows.count * columns.count));
    for (std::int64_t bin = 0; bin < bins; ++bin) {
      const std::int64_t row = bin / options.output_width;
      const std::int64_t column = bin % options.output_width;
      for (std::int64_t i = 0; i < rows.count; ++i) {
        for (std::int64_t j = 0; j < columns.count; ++j) {
          corners[at(i * columns.count + j)] =
              corners_at(rows.position(row, i), columns.position(column, j), height, width);
        }
      }
      for (std::int64_t c = 0; c < sizes[1]; ++c) {
        to[c * bins + bin] = pooled(corners, image + c * height * width);
      }
    }
  }

  template <typename T>
  T pooled(const std::vector<Corners<T>>& corners, const T* plane) const {
    if (corners.empty()) return T{0};
    T best = -std::numeric_limits<T>::infinity();
    T sum{};
    for (const Corners<T>& point : corners) {
      T value{};
      for (std::size_t k = 0; k < 4; ++k) {
        const T part = point.weight[k] * plane[point.index[k]];
        value += part;
        best = std::max(best, part);
      }
      sum += value;
    }
    return options.takes_maximum ? best : sum / static_cast<T>(corners.size());
  }
};

// Boxes -----------------------------------------------------------------------------------------

struct Box {
  double top, left, bottom, right;
  double area() const { return (bottom - top) * (right - left); }
};

template <typename T>
Box box_of(const T* numbers, bool centers) {
  const auto n = [numbers](std::size_t i) { return static_cast<double>(numbers[i]); };
  if (centers) {
    const double width = n(2) / 2.0;
    const double height = n(3) / 2.0;
    return {n(1) - height, n(0) - width, n(1) + height, n(0) + width};
  }
  // Two corners in any order.
  return {std::min(n(0), n(2)), std::min(n(1), n(3)), std::max(n(0), n(2)), std::max(n(1), n(3))};
}

double shared_part(const Box& a, const Box& b) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0.0 && width > 0.0) || !(a.area() > 0.0 && b.area() > 0.0)) return 0.0;
  const double both = height * width;
  return both / (a.area() + b.area() - both);
}

struct NonMaxSuppression final : Op<NonMaxSuppression> {
  static constexpr std::string_view kName = "non_max_suppression";
  static constexpr ArgumentCount kArguments{2};
  NmsOptions options;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& boxes = in[0];
    const Tensor& scores = in[1];
    require_tensor(kName, "boxes", boxes, {DType::Float32, DType::Float64});
    require_tensor(kName, "scores", scores, {boxes.dtype()});
    QUANTA_CHECK(boxes.dim() == 3 && boxes.size(2) == 4, "{}: boxes: expected [N, B, 4], got {}",
                 kName, boxes.sizes());
    QUANTA_CHECK(
        scores.dim() == 3 && scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1),
        "{}: scores: expected [{}, classes, {}], got {}", kName, boxes.size(0), boxes.size(1),
        scores.sizes());
    QUANTA_CHECK(options.iou_threshold >= 0.0 && options.iou_threshold <= 1.0,
                 "{}: iou_threshold: expected 0..1, got {}", kName, options.iou_threshold);
    out.reads_values(kName, boxes);
    out.reads_values(kName, scores);
    const auto numbers = select(boxes.contiguous(), scores.contiguous());
    out.add({static_cast<std::int64_t>(numbers.size()) / 3, 3}, DType::Int64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    std::ranges::copy(select(in[0].contiguous(), in[1].contiguous()),
                      static_cast<std::int64_t*>(out[0].data_ptr()));
    return "sort";
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = NonMaxSuppression;
    using Options = NmsOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::max_boxes>("max_boxes"),
        attribute<Self, &Self::options, &Options::iou_threshold>("iou_threshold"),
        attribute<Self, &Self::options, &Options::score_threshold>("score_threshold"),
        attribute<Self, &Self::options, &Options::centers>("centers")};
    return kTable;
  }

 private:
  std::vector<std::int64_t> select(const Tensor& boxes, const Tensor& scores) const {
    std::vector<std::int64_t> numbers;
    detail::visit_floats(boxes.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t count = boxes.size(1);
      std::vector<Box> of_image(at(count));
      for (std::int64_t image = 0; image < boxes.size(0); ++image) {
        const T* corner = static_cast<const T*>(boxes.data_ptr()) + image * count * 4;
        for (std::int64_t b = 0; b < count; ++b) {
          of_image[at(b)] = box_of(corner + 4 * b, options.centers);
        }
        for (std::int64_t label = 0; label < scores.size(1); ++label) {
          const T* score =
              static_cast<const T*>(scores.data_ptr()) + (image * scores.size(1) + label) * count;
          for (const std::int64_t b : best_of(of_image, score)) {
            numbers.insert(numbers.end(), {image, label, b});
          }
        }
      }
    });
    return numbers;
  }

  template <typename T>
  std::vector<std::int64_t> best_of(const std::vector<Box>& boxes, const T* score) const {
    std::vector<std::int64_t> order;
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      const auto value = static_cast<double>(score[b]);
      if (value == value && (!options.score_threshold || value > *options.score_threshold)) {
        order.push_back(static_cast<std::int64_t>(b));
      }
    }
    std::ranges::stable_sort(order, std::greater<>(), [score](std::int64_t b) { return score[b]; });
    std::vector<std::int64_t> kept;
    for (const std::int64_t b : order) {
      if (static_cast<std::int64_t>(kept.size()) >= options.max_boxes) break;
      const bool is_free = std::ranges::none_of(kept, [&](std::int64_t other) {
        // In float32, so that a share that is the threshold stays that.
        return static_cast<float>(shared_part(boxes[at(other)], boxes[at(b)])) >
               static_cast<float>(options.iou_threshold);
      });
      if (is_free) kept.push_back(b);
    }
    return kept;
  }
};

constexpr std::string_view kHeader = "quanta/ops/vision.h";

}  // namespace

void add_boxes(Catalogue& catalogue) {
  catalogue.add({.name = RoiAlign::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  RoiAlign operation;
                  operation.options = {.output_height = 2, .output_width = 2, .sampling_ratio = 2};
                  return sample_call(
                      operation, {sample_tensor({1, 2, 6, 6}, dtype),
                                  Tensor::from_values({0, 0, 4, 4, 1, 1, 5, 3}, {2, 4}).to(dtype),
                                  Tensor::zeros({2}, DType::Int64)});
                });
  catalogue.add({.name = NonMaxSuppression::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  NonMaxSuppression operation;
                  operation.options = {.max_boxes = 3, .iou_threshold = 0.5};
                  return sample_call(operation, {sample_tensor({1, 5, 4}, dtype),
                                                 sample_tensor({1, 2, 5}, dtype, 2)});
                });
}

}  // namespace vision

Tensor roi_align(const Tensor& x, const Tensor& rois, const Tensor& batch,
                 const RoiAlignOptions& options) {
  vision::RoiAlign operation;
  operation.options = options;
  return run(operation, x, rois, batch);
}
Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores, const NmsOptions& options) {
  vision::NonMaxSuppression operation;
  operation.options = options;
  return run(operation, boxes, scores);
}

}  // namespace quanta
