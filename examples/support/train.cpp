#include "support/train.h"

#include <algorithm>
#include <cstdio>

#include "console/progress.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/error.h"

namespace quanta::examples {
namespace {

optim::Counters to_counters(const data::DataLoader::Position& position) {
  return {{"loader.epoch", position.epoch},
          {"loader.seed", static_cast<std::int64_t>(position.seed)},
          {"loader.batch", position.batch}};
}

data::DataLoader::Position to_position(const optim::Counters& counters) {
  return {.epoch = counters.at("loader.epoch"),
          .seed = static_cast<std::uint64_t>(counters.at("loader.seed")),
          .batch = counters.at("loader.batch")};
}

std::string note(double loss, std::int64_t right, std::int64_t seen) {
  char text[64];
  std::snprintf(text, sizeof text, "loss %.3f  accuracy %.2f%%", loss,
                100.0 * static_cast<double>(right) / static_cast<double>(seen));
  return text;
}

}  // namespace

void train_epochs(const nn::Module& net, optim::TrainingLoop& loop, data::DataLoader& loader,
                  std::int64_t epochs, const std::string& label,
                  const std::function<void(std::int64_t)>& before_step,
                  const std::function<void(double loss)>& after_step) {
  if (const auto counters = loop.resume({"loader.epoch", "loader.seed", "loader.batch"})) {
    loader.set_position(to_position(*counters));
    std::fprintf(stderr, "%s: goes on from a checkpoint after %lld epochs\n", label.c_str(),
                 static_cast<long long>(loader.epochs_done()));
  }
  const std::int64_t save_every = std::max<std::int64_t>(loader.size() / 4, 1);
  while (loader.epochs_done() < epochs) {
    console::ProgressBar bar(
        label + " " + std::to_string(loader.epochs_done() + 1) + "/" + std::to_string(epochs),
        loader.size());
    double loss_sum = 0.0;
    std::int64_t right = 0;
    std::int64_t seen = 0;
    std::int64_t steps = 0;
    for (const data::Batch& batch : loader) {
      const data::DataLoader::Position at = loader.position();
      if (before_step) before_step(at.epoch * loader.size() + at.batch - 1);
      const double loss = loop.step([&] {
        const Tensor scores = net(batch.input);
        right += count_right(scores, batch.target);
        return cross_entropy(scores, batch.target);
      });
      loss_sum += loss;
      if (after_step) after_step(loss);
      seen += batch.target.numel();
      ++steps;
      bar.advance(steps == 1 ? at.batch : 1,
                  note(loss_sum / static_cast<double>(steps), right, seen));
      if (at.batch % save_every == 0 || at.batch == loader.size()) loop.save(to_counters(at));
    }
  }
}

std::int64_t count_right(const Tensor& scores, const Tensor& targets) {
  const Tensor rows = scores.detach().contiguous();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const auto* row = rows.data<float>() + i * rows.size(1);
    const auto best = std::max_element(row, row + rows.size(1)) - row;
    right += best == targets.data<std::int64_t>()[i] ? 1 : 0;
  }
  return right;
}

std::optional<std::string> option(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] != name) continue;
    if (i + 1 == argc) throw ArgumentError(name + ": expected a value, got none");
    return argv[i + 1];
  }
  return std::nullopt;
}

std::int64_t number_option(int argc, char** argv, const std::string& name, std::int64_t otherwise,
                           std::int64_t least) {
  const std::optional<std::string> text = option(argc, argv, name);
  if (!text) return otherwise;
  std::size_t used = 0;
  std::int64_t value = least - 1;
  try {
    value = std::stoll(*text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text->size() || value < least) {
    throw ArgumentError(name + ": expected a whole number from " + std::to_string(least) +
                        ", got '" + *text + "'");
  }
  return value;
}

bool yes_option(int argc, char** argv, const std::string& name) {
  const std::string text = option(argc, argv, name).value_or("no");
  if (text != "yes" && text != "no") {
    throw ArgumentError(name + ": expected yes or no, got " + text);
  }
  return text == "yes";
}

}  // namespace quanta::examples
