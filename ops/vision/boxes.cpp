#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/fault.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/vision.h"
#include "quanta/ops/vision/cuda_boxes.h"
#include "quanta/ops/vision/cuda_kernels.h"
#include "quanta/ops/vision/families.h"
#include "quanta/ops/vision/regions.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace vision {
namespace {

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

// Regions ---------------------------------------------------------------------------------------

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
    QUANTA_CHECK(options.sampling_ratio >= 0 && options.sampling_ratio <= kMaxSamplingRatio,
                 "{}: sampling_ratio: expected 0..{}, got {}", kName, kMaxSamplingRatio,
                 options.sampling_ratio);
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.arrange(2, MemoryFormat::Contiguous);
    out.add({in[1].size(0), x.size(1), options.output_height, options.output_width}, x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor batch = checked_batch(in[2], in[0].size(0));
    const auto* image = static_cast<const std::int64_t*>(batch.data_ptr());
    const Dims& sizes = in[0].sizes();
    const RegionRule rule = this->rule();
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* src = static_cast<const T*>(in[0].data_ptr());
      const auto* rois = static_cast<const T*>(in[1].data_ptr());
      auto* dst = static_cast<T*>(out[0].data_ptr());
      const std::int64_t result = out[0].numel() / batch.numel();
      parallel_for(batch.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          align(rule, src + image[r] * sizes[1] * sizes[2] * sizes[3], sizes, rois + 4 * r,
                dst + r * result);
        }
      });
    });
    return "points";
  }
  // Waits for the host once, as images that are not there and regions too large are refused.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[0].sizes();
    const cuda::Fault fault(out[0].device());
    cuda::align_regions(out[0].device(), {.is_double = in[0].dtype() == DType::Float64,
                                          .rule = rule(),
                                          .images = sizes[0],
                                          .channels = sizes[1],
                                          .height = sizes[2],
                                          .width = sizes[3],
                                          .regions = in[1].size(0),
                                          .x = in[0].device_ptr(),
                                          .rois = in[1].device_ptr(),
                                          .batch = in[2].device_ptr(),
                                          .is_long = in[2].dtype() == DType::Int64,
                                          .out = out[0].device_ptr(),
                                          .fault = fault.flag()});
    if (!fault.is_raised()) return "align_regions";
    const Tensor rois = in[1].cpu();
    const Tensor batch = in[2].cpu();
    checked_batch(batch, sizes[0]);
    detail::visit_floats(rois.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t r = 0; r < rois.size(0); ++r) {
        const T* roi = static_cast<const T*>(rois.data_ptr()) + 4 * r;
        Region<T>(rule(), roi);
      }
    });
    throw InternalError("roi_align: rois: expected a fault that the host finds as well");
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

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
  RegionRule rule() const {
    return {options.output_height, options.output_width, options.sampling_ratio,
            options.spatial_scale, options.half_pixel,   options.takes_maximum};
  }
  /// The images of the regions, on the CPU.
  static Tensor checked_batch(const Tensor& given, std::int64_t images) {
    Tensor batch = detail::int64_indices(kName, "batch", given);
    const auto* image = static_cast<const std::int64_t*>(batch.data_ptr());
    for (std::int64_t r = 0; r < batch.numel(); ++r) {
      QUANTA_CHECK(image[r] >= 0 && image[r] < images, "{}: batch: expected 0..{}, got {}", kName,
                   images - 1, image[r]);
    }
    return batch;
  }

  /// The points of a region's bins, few enough.
  template <typename T>
  struct Region {
    Points<T> rows, columns;

    Region(const RegionRule& rule, const T* roi)
        : rows(rule, roi[1], roi[3], rule.rows), columns(rule, roi[0], roi[2], rule.columns) {
      for (const Points<T>* each : {&rows, &columns}) {
        QUANTA_CHECK(each->count >= 0,
                     "{}: rois: expected regions of at most {} elements a bin, got {}", kName,
                     kMaxPoints, each->needed);
      }
      QUANTA_CHECK(are_few(rows, columns),
                   "{}: rois: expected regions of at most {} points a bin, got {} x {}", kName,
                   kMaxBinPoints, rows.count, columns.count);
    }
  };

  template <typename T>
  static void align(const RegionRule& rule, const T* image, const Dims& sizes, const T* roi,
                    T* to) {
    const std::int64_t height = sizes[2];
    const std::int64_t width = sizes[3];
    const Region<T> region(rule, roi);
    const Points<T>& rows = region.rows;
    const Points<T>& columns = region.columns;
    const std::int64_t bins = rule.rows * rule.columns;
    // A row of points at a time, as a bin may have millions.
    std::vector<Corners<T>> corners(at(columns.count));
    std::vector<BinSum<T>> sums;
    for (std::int64_t bin = 0; bin < bins; ++bin) {
      const std::int64_t row = bin / rule.columns;
      const std::int64_t column = bin % rule.columns;
      sums.assign(at(sizes[1]), {});
      for (std::int64_t i = 0; i < rows.count; ++i) {
        for (std::int64_t j = 0; j < columns.count; ++j) {
          corners[at(j)] =
              corners_at(rows.position(row, i), columns.position(column, j), height, width);
        }
        for (std::int64_t c = 0; c < sizes[1]; ++c) {
          const T* plane = image + c * height * width;
          for (const Corners<T>& point : corners) sums[at(c)].add(point, plane);
        }
      }
      for (std::int64_t c = 0; c < sizes[1]; ++c) {
        to[c * bins + bin] = sums[at(c)].result(rule.takes_maximum, rows.count * columns.count);
      }
    }
  }
};

// Boxes -----------------------------------------------------------------------------------------

/// The boxes that were chosen on a CUDA device. Waits for the host once, for their number.
class CudaSelection {
 public:
  CudaSelection(const Tensor& boxes, const Tensor& scores, const NmsOptions& options)
      : device_(boxes.device()),
        most_(std::clamp<std::int64_t>(options.max_boxes, 0, boxes.size(1))),
        images_(boxes.size(0)),
        labels_(scores.size(1)) {
    const auto pairs = static_cast<std::size_t>(images_ * labels_);
    if (pairs == 0 || most_ == 0) return;
    const Tensor corners = boxes.contiguous();
    const Tensor numbers = scores.contiguous();
    const cuda::Buffer is_left(device_, static_cast<std::size_t>(numbers.numel()));
    kept_ = cuda::Buffer(device_, pairs * at(most_) * sizeof(std::int64_t));
    const cuda::Buffer counts(device_, pairs * sizeof(std::int64_t));
    cuda::select_boxes(device_, {.is_double = boxes.dtype() == DType::Float64,
                                 .images = images_,
                                 .labels = labels_,
                                 .boxes = boxes.size(1),
                                 .max_boxes = most_,
                                 .iou_threshold = static_cast<float>(options.iou_threshold),
                                 .has_score_threshold = options.score_threshold.has_value(),
                                 .score_threshold = options.score_threshold.value_or(0.0),
                                 .centers = options.centers,
                                 .corners = corners.device_ptr(),
                                 .scores = numbers.device_ptr(),
                                 .is_left = is_left.as<std::uint8_t>(),
                                 .kept = kept_.as<std::int64_t>(),
                                 .counts = counts.as<std::int64_t>()});
    std::vector<std::int64_t> starts(pairs + 1);
    cuda::driver(device_).copy_to_host(starts.data() + 1, counts.as<void>(), counts.bytes());
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    count_ = starts.back();
    starts_ = cuda::Buffer(device_, starts.data(), starts.size() * sizeof(std::int64_t));
  }

  std::int64_t count() const noexcept { return count_; }
  void write(const Tensor& out) const {
    cuda::write_boxes(device_, {.images = images_,
                                .labels = labels_,
                                .max_boxes = most_,
                                .kept = kept_.as<std::int64_t>(),
                                .starts = starts_.as<std::int64_t>(),
                                .out = reinterpret_cast<std::int64_t*>(out.device_ptr())});
  }

 private:
  Device device_;
  std::int64_t most_, images_, labels_;
  std::int64_t count_ = 0;
  cuda::Buffer kept_, starts_;
};

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
    out.add({count(boxes, scores), 3}, DType::Int64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    std::ranges::copy(select(in[0].contiguous(), in[1].contiguous()),
                      static_cast<std::int64_t*>(out[0].data_ptr()));
    return "sort";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    CudaSelection(in[0], in[1], options).write(out[0]);
    return "select_boxes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }
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
  /// How many boxes are chosen.
  std::int64_t count(const Tensor& boxes, const Tensor& scores) const {
    if (boxes.device() != scores.device()) return 0;  // refused where the call is run
    if (boxes.device().is_cuda()) return CudaSelection(boxes, scores, options).count();
    return static_cast<std::int64_t>(select(boxes.contiguous(), scores.contiguous()).size()) / 3;
  }
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
