#include "distributed/evaluate.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "cli/json_file.h"
#include "console/progress.h"
#include "distributed/fashion_network.h"
#include "quanta/fusion/distributed/evaluate.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/nn/data/image_folder.h"

namespace quanta::cli {
namespace {

using data::FashionMnist;

// A network and what it is called in the output.
struct Subject {
  std::string name;
  std::shared_ptr<const nn::Module> net;
};

Subject load_subject(const EvaluateCommand& options, const distributed::Communicator& comm) {
  // Processes of one machine share the pages of a file.
  const FileAccess access = comm.local_size() > 1 ? FileAccess::Map : FileAccess::Copy;
  if (!options.onnx.empty()) {
    graph::LoadOptions load;
    load.access = access;
    auto net = std::make_shared<graph::Model>(graph::load_onnx(options.onnx, load));
    net->eval();
    return {options.onnx, net};
  }
  const FashionNetwork fresh = make_fashion_network(options.model);
  const std::filesystem::path weights = options.weights.empty()
                                            ? fashion_weights(options.model)
                                            : std::filesystem::path(options.weights);
  const std::string kind = load_weights(*fresh.net, weights, access);
  fresh.net->eval();
  return {fmt::format("{} ({}: {})", options.model, kind, weights.filename().string()), fresh.net};
}

struct Examples {
  std::shared_ptr<const data::Dataset> dataset;
  data::Transform transform;
  std::string name;
  std::int64_t classes;
};

Examples load_examples(const EvaluateCommand& options) {
  Examples examples;
  if (!options.pictures.empty()) {
    const auto folder = std::make_shared<data::ImageFolder>(options.pictures);
    examples = {folder,
                data::compose({data::resize(options.size, options.size),
                               data::normalize(options.mean, options.std)}),
                options.pictures, static_cast<std::int64_t>(folder->classes().size())};
  } else {
    const bool test = options.split == "test";
    const FashionMnist set(options.data.empty() ? FashionMnist::kDebianFolder : options.data,
                           test ? FashionMnist::Split::Test : FashionMnist::Split::Train);
    examples = {set.dataset(), FashionMnist::normalization(),
                fmt::format("Fashion-MNIST, {} split", options.split), 10};
  }
  if (options.images > 0 && options.images < examples.dataset->size()) {
    examples.dataset = std::make_shared<data::Subset>(examples.dataset, 0, options.images);
  }
  return examples;
}

int evaluate_on(const EvaluateCommand& options, const distributed::Communicator& comm) {
  require_outputs(comm, {{"--json", options.json}});
  const Examples examples = load_examples(options);
  const Subject subject = load_subject(options, comm);
  std::optional<console::ProgressBar> bar;
  if (comm.is_first()) bar.emplace("evaluating", examples.dataset->size());
  std::int64_t shown = 0;
  const bool has_top5 = examples.classes > 5;
  std::vector<distributed::Metric> metrics{distributed::accuracy(),
                                           distributed::cross_entropy_loss()};
  if (has_top5) metrics.push_back(distributed::top_k(5));
  comm.barrier("evaluate: ready");
  const auto begin = std::chrono::steady_clock::now();
  const distributed::Evaluation result = distributed::evaluate(
      *subject.net, examples.dataset, distributed::combine(std::move(metrics)), comm,
      {.batch_size = options.batch,
       .transform = examples.transform,
       .progress = [&](std::int64_t done, std::int64_t) {
         if (bar) bar->advance(done - shown);
         shown = done;
       }});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bar.reset();
  if (!comm.is_first()) return 0;
  const double rate = static_cast<double>(result.examples()) / seconds;
  fmt::print("{}: {} images ({}), {}\n", subject.name, result.examples(), examples.name,
             describe_ranks(comm));
  fmt::print("top-1  {:8.3f} %\n", 100.0 * result.mean("top-1"));
  if (has_top5) fmt::print("top-5  {:8.3f} %\n", 100.0 * result.mean("top-5"));
  fmt::print("loss   {:.17g}\n", result.mean("loss"));
  fmt::print("speed  {:8.0f} images/s\n", rate);
  if (!options.json.empty()) {
    nlohmann::json figures{{"model", subject.name},        {"examples", result.examples()},
                           {"top1", result.mean("top-1")}, {"loss", result.mean("loss")},
                           {"ranks", comm.size()},         {"processes", comm.processes()},
                           {"seconds", seconds},           {"images_per_second", rate}};
    if (has_top5) figures["top5"] = result.mean("top-5");
    write_json(options.json, figures);
  }
  return 0;
}

}  // namespace

int run_evaluate(const EvaluateCommand& options) {
  return run_on_ranks(options.ranks, [&](const distributed::Communicator& comm) {
    return evaluate_on(options, comm);
  });
}

}  // namespace quanta::cli
