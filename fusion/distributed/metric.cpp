#include "quanta/fusion/distributed/metric.h"

#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "quanta/ops/loss.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

constexpr std::int64_t kMostClasses = 4096;

void require_classes(std::string_view op, const Tensor& output, const Tensor& target) {
  QUANTA_CHECK(output.defined() && output.dim() >= 2 && output.size(1) >= 1,
               "{}: output: expected [N, C, ...], got {}", op,
               output.defined() ? to_string(output.sizes()) : "an undefined tensor");
  Dims places = output.sizes();
  places.erase(1);
  QUANTA_CHECK(target.defined() && target.dtype() == DType::Int64 && target.sizes() == places,
               "{}: target: expected Int64 {}, got {}", op, places,
               target.defined() ? fmt::format("{} {}", target.dtype(), target.sizes())
                                : "an undefined tensor");
}

// Dense on the host; the tensor itself where it is that already.
Tensor dense(const Tensor& x) { return x.defined() ? x.detach().cpu().contiguous() : x; }

Tensor dense_floats(const Tensor& x) {
  const Tensor host = dense(x);
  if (host.dtype() == DType::Float32) return host;
  return Tensor::from_values(host.to_float_vector(), host.sizes());
}

// Scores [N, C, places] and the classes [N, places] of a batch.
struct Scores {
  Tensor scores;
  Tensor targets;
  const float* score_data;
  const std::int64_t* target_data;
  std::int64_t examples;
  std::int64_t classes;
  std::int64_t places;

  Scores(std::string_view op, const Tensor& output, const Tensor& target) {
    require_classes(op, output, target);
    scores = dense_floats(output);
    targets = dense(target);
    score_data = scores.data<float>();
    target_data = targets.data<std::int64_t>();
    examples = output.size(0);
    classes = output.size(1);
    places = examples == 0 ? 0 : targets.numel() / examples;
    for (const std::int64_t each : targets.span<std::int64_t>()) {
      QUANTA_CHECK(each >= 0 && each < classes, "{}: target: expected 0..{}, got {}", op,
                   classes - 1, each);
    }
  }
  float score(std::int64_t example, std::int64_t label, std::int64_t place) const {
    return score_data[(example * classes + label) * places + place];
  }
  std::int64_t target(std::int64_t example, std::int64_t place) const {
    return target_data[example * places + place];
  }
  // The first of the largest; NaN counts as larger than all numbers, as in argmax.
  std::int64_t largest(std::int64_t example, std::int64_t place) const {
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c) {
      const float at = score(example, c, place);
      const float before = score(example, best, place);
      if (at > before || (std::isnan(at) && !std::isnan(before))) best = c;
    }
    return best;
  }
};

Tensor column(const std::vector<double>& values) {
  const Tensor result = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::Float64);
  std::copy(values.begin(), values.end(), result.mutable_data<double>());
  return result;
}

}  // namespace

Metric accuracy() {
  return {{"top-1"}, [](const Tensor& output, const Tensor& target) {
            const Scores batch("accuracy", output, target);
            std::vector<double> values;
            for (std::int64_t i = 0; i < batch.examples; ++i) {
              std::int64_t right = 0;
              for (std::int64_t p = 0; p < batch.places; ++p) {
                right += batch.largest(i, p) == batch.target(i, p) ? 1 : 0;
              }
              values.push_back(static_cast<double>(right) / static_cast<double>(batch.places));
            }
            return column(values);
          }};
}

Metric top_k(std::int64_t k) {
  QUANTA_CHECK(k >= 1, "top_k: k: expected at least 1, got {}", k);
  return {{fmt::format("top-{}", k)}, [k](const Tensor& output, const Tensor& target) {
            QUANTA_CHECK(output.defined() && output.dim() == 2,
                         "top_k: output: expected [N, C], got {}",
                         output.defined() ? to_string(output.sizes()) : "an undefined tensor");
            const Scores batch("top_k", output, target);
            std::vector<double> values;
            for (std::int64_t i = 0; i < batch.examples; ++i) {
              const float own = batch.score(i, batch.target(i, 0), 0);
              std::int64_t larger = 0;
              for (std::int64_t c = 0; c < batch.classes; ++c) {
                larger += batch.score(i, c, 0) <= own ? 0 : 1;  // NaN is larger than all numbers
              }
              values.push_back(!std::isnan(own) && larger < k ? 1.0 : 0.0);
            }
            return column(values);
          }};
}

Metric cross_entropy_loss() {
  return {{"loss"}, [](const Tensor& output, const Tensor& target) {
            require_classes("cross_entropy_loss", output, target);
            QUANTA_CHECK(output.dim() == 2, "cross_entropy_loss: output: expected [N, C], got {}",
                         output.sizes());
            if (output.size(0) == 0) return column({});
            return cross_entropy(output, target, {.reduction = Reduction::None});
          }};
}

Metric mean_squared_error() {
  return {{"mse"}, [](const Tensor& output, const Tensor& target) {
            QUANTA_CHECK(output.defined() && target.defined() && output.dim() >= 1 &&
                             output.sizes() == target.sizes(),
                         "mean_squared_error: target: expected the output's sizes {}, got {}",
                         output.defined() ? to_string(output.sizes()) : "(none)",
                         target.defined() ? to_string(target.sizes()) : "(none)");
            const std::vector<float> given = output.detach().to_float_vector();
            const std::vector<float> expected = target.detach().to_float_vector();
            const std::int64_t examples = output.size(0);
            const std::size_t size =
                examples == 0 ? 0 : given.size() / static_cast<std::size_t>(examples);
            std::vector<double> values;
            for (std::size_t begin = 0; begin < given.size(); begin += size) {
              double sum = 0.0;
              for (std::size_t j = begin; j < begin + size; ++j) {
                const double error =
                    static_cast<double>(given[j]) - static_cast<double>(expected[j]);
                sum += error * error;
              }
              values.push_back(sum / static_cast<double>(size));
            }
            return column(values);
          }};
}

Metric confusion_matrix(std::int64_t classes) {
  QUANTA_CHECK(classes >= 1 && classes <= kMostClasses,
               "confusion_matrix: classes: expected 1..{}, got {}", kMostClasses, classes);
  Metric metric;
  for (std::int64_t row = 0; row < classes; ++row) {
    for (std::int64_t column = 0; column < classes; ++column) {
      metric.names.push_back(fmt::format("{}:{}", row, column));
    }
  }
  metric.values = [classes](const Tensor& output, const Tensor& target) {
    const Scores batch("confusion_matrix", output, target);
    QUANTA_CHECK(batch.classes == classes && output.dim() == 2,
                 "confusion_matrix: output: expected [N, {}], got {}", classes, output.sizes());
    const Tensor result = Tensor::zeros({batch.examples, classes * classes}, DType::Float64);
    auto* values = result.mutable_data<double>();
    for (std::int64_t i = 0; i < batch.examples; ++i) {
      values[(i * classes + batch.target(i, 0)) * classes + batch.largest(i, 0)] = 1.0;
    }
    return result;
  };
  return metric;
}

Metric combine(std::vector<Metric> metrics) {
  Metric all;
  for (const Metric& metric : metrics) {
    QUANTA_CHECK(metric.values && !metric.names.empty(),
                 "combine: metrics: expected names and a function of each");
    all.names.insert(all.names.end(), metric.names.begin(), metric.names.end());
  }
  all.values = [metrics = std::move(metrics), columns = all.names.size()](const Tensor& output,
                                                                          const Tensor& target) {
    const Tensor scores = dense(output);
    const Tensor classes = dense(target);
    std::vector<Tensor> parts;
    for (const Metric& metric : metrics) parts.push_back(metric.values(scores, classes));
    const std::int64_t rows = parts.empty() ? 0 : parts.front().size(0);
    const Tensor result = Tensor::empty({rows, static_cast<std::int64_t>(columns)}, DType::Float64);
    auto* to = result.mutable_data<double>();
    std::vector<std::vector<double>> values;
    for (std::size_t m = 0; m < parts.size(); ++m) {
      const Tensor wide = parts[m].to(DType::Float64).contiguous();
      const auto count = static_cast<std::int64_t>(metrics[m].names.size());
      QUANTA_CHECK(wide.dim() >= 1 && wide.size(0) == rows && wide.numel() == rows * count,
                   "combine: values: expected {} numbers for each of {} examples, got {}", count,
                   rows, wide.sizes());
      const auto* from = wide.data<double>();
      values.emplace_back(from, from + wide.numel());
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::size_t m = 0; m < parts.size(); ++m) {
        const std::size_t count = metrics[m].names.size();
        for (std::size_t j = 0; j < count; ++j) {
          *to++ = values[m][static_cast<std::size_t>(i) * count + j];
        }
      }
    }
    return result;
  };
  return all;
}

}  // namespace quanta::distributed
