#include "console/measure.h"

#include <algorithm>
#include <chrono>

#include "console/progress.h"

namespace quanta::console {

double top1(const nn::Module& model, const data::FashionMnist& data, std::int64_t images,
            const std::string& label) {
  constexpr std::int64_t kBatch = 64;
  ProgressBar bar(label, images);
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < images; begin += kBatch) {
    const std::int64_t count = std::min(kBatch, images - begin);
    const Tensor logits = model(data.images(begin, count)).contiguous();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto* row = logits.data<float>() + i * logits.size(1);
      right += std::max_element(row, row + logits.size(1)) - row == data.label(begin + i) ? 1 : 0;
    }
    bar.advance(count);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(images);
}

std::vector<double> median_ms(const std::vector<std::function<void()>>& calls, int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> times(calls.size());
  const int warm_up = rounds / 5 + 1;
  for (int round = 0; round < warm_up + rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto start = Clock::now();
      calls[i]();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      if (round >= warm_up) times[i].push_back(ms);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& one : times) {
    std::sort(one.begin(), one.end());
    medians.push_back(one[one.size() / 2]);
  }
  return medians;
}

std::size_t weight_bytes(const nn::Module& model) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : model.state_dict()) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace quanta::console
