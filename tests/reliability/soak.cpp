// Weeks of use in minutes. quanta_soak MINUTES [SEED] lets four threads do what programs do, in
// random order: run shared networks on inputs of any size with any number of threads, freeze them,
// save and load them, quantize new ones, train for a step. Every result is compared with what the
// same input gave at first. The time begins after the first jobs, which fill caches; every ten
// seconds a line says what the process holds. It ends with 1 when a result differs, when the last
// third of the time holds more memory than the second third (by 8 MB) or more open files. What is
// resident counts (by 20 MB) in long runs only: the heap's holes fill for thousands of jobs.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "support/resources.h"

namespace {

namespace fs = std::filesystem;
using quanta::Generator;
using quanta::Tensor;
using quanta::nn::models::FashionLstm;
using quanta::nn::models::FashionResNet;
using Clock = std::chrono::steady_clock;

struct Sample {
  double in_use, resident;  // megabytes
  std::ptrdiff_t files;
  std::int64_t jobs = 0;  // done until then
};

constexpr std::size_t kThreads = 4;
constexpr std::size_t kKnown = 12;
constexpr Sample kMostGrowth = {.in_use = 8.0, .resident = 20.0, .files = 0, .jobs = 0};
constexpr std::int64_t kWarmUpJobs = 1000;
constexpr std::int64_t kJobsToFillHoles = 6000;

void require_same(const Tensor& got, const Tensor& expected, const char* what) {
  if (!got.equal(expected)) throw std::logic_error(std::string(what) + ": another result");
}

FashionResNet fused_resnet() {
  FashionResNet net;
  net.eval();
  quanta::fuse_modules(net, fusion_groups(net));
  return net;
}

FashionResNet int8_resnet(const FashionResNet& fused, const Tensor& image) {
  const FashionResNet prepared = quanta::prepare(fused, quanta::get_default_qconfig());
  prepared(image);
  return quanta::convert(prepared);
}

FashionLstm dynamic_lstm() {
  FashionLstm net;
  net.eval();
  return quanta::quantize_dynamic(net);
}

/// What the threads share, and what it gave at first.
struct Shared {
  explicit Shared(fs::path given) : folder(std::move(given)) {
    for (std::size_t i = 0; i < kKnown; ++i) {
      images.push_back(
          quanta::randn({1, 1, generator.integer(8, 64), generator.integer(8, 64)}, generator));
      results.push_back(int8(images.back()));
    }
    const Tensor one = small_image();
    quanta::graph::save_onnx(fused_resnet(), {&one, 1}, folder / "float.onnx");
    lstm_result = lstm(lstm_input);
  }
  Tensor small_image() { return quanta::randn({1, 1, 28, 28}, generator); }

  fs::path folder;
  Generator generator{4};
  FashionResNet fused = fused_resnet(), int8 = int8_resnet(fused, small_image());
  std::vector<Tensor> images, results;
  FashionLstm lstm = dynamic_lstm();
  Tensor lstm_input = quanta::randn({3, 1, 28, 28}, generator), lstm_result;
};

using Job = std::function<void(const Shared&, Generator&, const fs::path& own)>;

std::size_t below(Generator& generator, std::size_t end) {
  return static_cast<std::size_t>(generator.integer(0, static_cast<std::int64_t>(end) - 1));
}

void run_known(const Shared& shared, Generator& generator, const fs::path&) {
  const std::size_t i = below(generator, kKnown);
  require_same(shared.int8(shared.images[i]), shared.results[i], "int8 network");
}

void run_any_size(const Shared& shared, Generator& generator, const fs::path&) {
  const Tensor x = quanta::randn(
      {generator.integer(1, 3), 1, generator.integer(8, 64), generator.integer(8, 64)}, generator);
  require_same(shared.int8(x), shared.int8(x), "int8 network, twice");
  shared.fused(x);
}

void run_lstm(const Shared& shared, Generator&, const fs::path&) {
  require_same(shared.lstm(shared.lstm_input), shared.lstm_result, "dynamic LSTM");
}

void freeze_one(const Shared& shared, Generator& generator, const fs::path&) {
  const std::size_t i = below(generator, kKnown);
  const auto plan = quanta::freeze(shared.int8, shared.images[i]);
  require_same(plan(shared.images[i]), shared.results[i], "plan");
}

void save_and_load(const Shared& shared, Generator& generator, const fs::path& own) {
  quanta::save_model(
      shared.int8, own,
      {.packed = generator.integer(0, 1) == 0 ? quanta::SavePacked::Yes : quanta::SavePacked::No});
  FashionResNet loaded;
  loaded.eval();
  quanta::load_model(loaded, own);
  const std::size_t i = below(generator, kKnown);
  require_same(loaded(shared.images[i]), shared.results[i], "loaded network");
}

void quantize_new(const Shared& shared, Generator& generator, const fs::path&) {
  const std::size_t i = below(generator, kKnown);
  const FashionResNet again = int8_resnet(shared.fused, shared.images[i]);
  require_same(again(shared.images[i]), again(shared.images[i]), "new network, twice");
}

void run_graph(const Shared& shared, Generator& generator, const fs::path&) {
  const quanta::graph::Model model = quanta::graph::load_onnx(shared.folder / "float.onnx");
  const quanta::graph::FrozenGraph plan(model);
  const Tensor x = quanta::randn({1, 1, 28, 28}, generator);
  require_same(plan(x), model.run({&x, 1}).front(), "graph's plan");
}

void train_a_step(const Shared&, Generator& generator, const fs::path&) {
  FashionResNet net;
  net.requires_grad_();
  quanta::optim::SGD optimizer(net.parameters(), {.lr = 0.01});
  const Tensor x = quanta::randn({2, 1, 28, 28}, generator);
  const Tensor labels = Tensor::from_span(std::vector<std::int64_t>{1, 7});
  quanta::cross_entropy(net(x), labels).backward();
  optimizer.step();
}

void profile_a_run(const Shared& shared, Generator& generator, const fs::path& own) {
  const quanta::Profiler profiler;
  run_known(shared, generator, own);
  if (profiler.events().empty()) throw std::logic_error("profiler: no events");
}

struct NamedJob {
  const char* name;
  Job job;
  std::atomic<std::int64_t> done{0};
};

/// The jobs, and what went wrong first.
class Soak {
 public:
  Soak(const Shared& shared, std::uint64_t seed) : shared_(shared) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads_.emplace_back([this, t, seed] { work(t, seed); });
    }
  }
  ~Soak() { stop(); }
  Soak(const Soak&) = delete;
  Soak& operator=(const Soak&) = delete;

  void stop() {
    stopped_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return !failure_.empty();
  }
  std::string failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Holds the threads between two jobs and looks.
  template <typename Look>
  auto at_rest(Look&& look) {
    const std::lock_guard entrance(entrance_);  // closed: readers would come in for ever
    const std::unique_lock lock(rest_);
    return look();
  }
  std::int64_t done() const {
    std::int64_t all = 0;
    for (const NamedJob& job : jobs_) all += job.done;
    return all;
  }
  void print_jobs() const {
    for (const NamedJob& job : jobs_)
      std::printf("  %-16s %8jd\n", job.name, std::intmax_t{job.done});
  }

 private:
  void work(std::size_t thread, std::uint64_t seed) {
    Generator generator(seed * kThreads + thread);
    const fs::path own = shared_.folder / ("of_thread_" + std::to_string(thread));
    try {
      while (!stopped_) {
        entrance_.lock();
        const std::shared_lock lock(rest_);
        entrance_.unlock();
        quanta::set_num_threads(static_cast<int>(generator.integer(1, 3)));
        NamedJob& job = jobs_[below(generator, std::size(jobs_))];
        job.job(shared_, generator, own);
        ++job.done;
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = error.what();
    }
  }

  const Shared& shared_;
  NamedJob jobs_[9] = {
      {"known inputs", run_known}, {"any size", run_any_size},    {"LSTM", run_lstm},
      {"freeze", freeze_one},      {"save, load", save_and_load}, {"quantize", quantize_new},
      {"ONNX graph", run_graph},   {"train", train_a_step},       {"profile", profile_a_run}};
  std::atomic<bool> stopped_{false};
  std::mutex entrance_;
  std::shared_mutex rest_;
  std::mutex mutex_;
  std::string failure_;
  std::vector<std::thread> threads_;
};

/// The most that any of the samples says.
Sample most(std::span<const Sample> samples) {
  Sample result{0.0, 0.0, 0, 0};
  for (const Sample& sample : samples) {
    result.in_use = std::max(result.in_use, sample.in_use);
    result.resident = std::max(result.resident, sample.resident);
    result.files = std::max(result.files, sample.files);
  }
  return result;
}

void print(const char* when, const Sample& sample) {
  std::printf("%s: %7.1f MB in use, %7.1f MB resident, %td files", when, sample.in_use,
              sample.resident, sample.files);
}

/// Whether the process does not grow.
bool holds(std::span<const Sample> samples) {
  const std::size_t third = samples.size() / 3;
  const Sample second = most(samples.subspan(third, samples.size() - 2 * third));
  const Sample last = most(samples.last(third));
  print("second third", second);
  print("\nlast third  ", last);
  const bool long_run = samples[third].jobs >= kJobsToFillHoles;
  std::printf("\nwhat is resident %s\n",
              long_run ? "counts" : "does not count in a run this short");
  // AddressSanitizer keeps what is freed for a while.
  if (QUANTA_ADDRESS_SANITIZER == 0) {
    if (last.in_use > second.in_use + kMostGrowth.in_use) return false;
    if (long_run && last.resident > second.resident + kMostGrowth.resident) return false;
  }
  return last.files <= second.files + kMostGrowth.files;
}

int run(double minutes, std::uint64_t seed, const fs::path& folder) {
  quanta::manual_seed(1);
  const Shared shared(folder);
  Soak soak(shared, seed);
  const double every = std::min(10.0, minutes * 60 / 12);
  const auto wait = [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  };
  while (soak.done() < kWarmUpJobs && !soak.failed()) wait(0.05);

  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::vector<Sample> samples;
  while ((seconds() < minutes * 60 || samples.size() < 3) && !soak.failed()) {
    wait(every);
    samples.push_back(soak.at_rest([&] {
      return Sample{quanta::test::in_use_megabytes(), quanta::test::resident_megabytes(),
                    quanta::test::open_files(), soak.done()};
    }));
    std::printf("%7.0f s, %8jd jobs", seconds(), std::intmax_t{samples.back().jobs});
    print("", samples.back());
    std::printf("\n");
    std::fflush(stdout);
  }
  soak.stop();
  soak.print_jobs();
  if (soak.failed()) throw std::logic_error(soak.failure());
  return holds(samples) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const double minutes = argc > 1 ? std::atof(argv[1]) : 0.0;
  if (!(minutes > 0.0) || argc > 3) {
    std::fprintf(stderr, "usage: %s MINUTES [SEED]\n", argv[0]);
    return 2;
  }
  const fs::path folder = fs::temp_directory_path() / ("quanta_soak_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  int status = 0;
  try {
    status = run(minutes, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1, folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  fs::remove_all(folder);
  return status;
}
