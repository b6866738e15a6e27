#include "profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "networks.h"
#include "on_device.h"
#include "profile_output.h"
#include "quanta/quanta.h"

namespace quanta::cli {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The middle one of one or more values.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double op_us(const std::vector<ModuleProfile>& modules) {
  double sum = 0.0;
  for (const ModuleProfile& module : modules) sum += module.op_us;
  return sum;
}

/// One form of a network, and what several runs of it took.
class Subject {
 public:
  /// Of runs on x, which lies where the network does.
  Subject(std::function<Tensor(const Tensor&)> run, Tensor x)
      : run_(std::move(run)), x_(std::move(x)) {
    profiler_.stop();
  }

  void warm_up() {
    for (int i = 0; i < 3; ++i) call();
    static_cast<void>(profiled_us());  // the profiler knows the modules' names then
  }
  void run() {
    // The other form has just used the caches, and perhaps OpenMP's threads, which stay awake beside
    // Quanta's for some milliseconds.
    constexpr double kSettleUs = 20e3;
    const auto begin = Clock::now();
    do call();
    while (microseconds_since(begin) < kSettleUs);
    const auto start = Clock::now();
    call();
    call_us_.push_back(microseconds_since(start));
    const double us = profiled_us();
    runs_.push_back(profiler_.modules());
    // Differences of one run: on a busy machine those of medians would tell of other runs' delays.
    outside_us_.push_back(us - op_us(runs_.back()));
  }

  std::vector<ModuleTime> times() const { return median_times(runs_); }
  Totals totals() const {
    Totals totals{.call = median(call_us_), .outside = median(outside_us_)};
    for (const ModuleTime& module : times()) totals.ops += module.us;
    return totals;
  }
  const std::vector<ProfileEvent>& last_events() const { return profiler_.events(); }

 private:
  void call() const {
    static_cast<void>(run_(x_));
    synchronize(x_.device());
  }
  double profiled_us() {
    profiler_.clear();
    profiler_.start();
    const auto start = Clock::now();
    call();
    const double us = microseconds_since(start);
    profiler_.stop();
    return us;
  }

  std::function<Tensor(const Tensor&)> run_;
  Tensor x_;
  std::vector<double> call_us_, outside_us_;
  std::vector<std::vector<ModuleProfile>> runs_;
  Profiler profiler_;
};

Subject eager(std::shared_ptr<nn::Module> model, const Tensor& x) {
  return {[model = std::move(model)](const Tensor& input) { return (*model)(input); }, x};
}

NetworkForm chosen_form(const NetworkKind& kind, const std::string& dtype) {
  if (dtype.empty()) return kind.is_static ? NetworkForm::Int8 : NetworkForm::DynamicInt8;
  const NetworkForm form = network_form(dtype);
  if (form == NetworkForm::Float32) {
    throw ArgumentError(
        "profile: --dtype: expected int8, dynamic-int8 or dynamic-int8-attention, got float32");
  }
  return form;
}

Tensor first_batch(const NetworkKind& kind, const ProfileOptions& options) {
  if (options.input.empty()) return random_inputs(kind, options.batch);
  const Tensor inputs = read_inputs(kind, options.input);
  if (inputs.size(0) < options.batch) {
    throw ArgumentError(
        fmt::format("profile: --batch: expected at most the {} inputs of {}, got {}",
                    inputs.size(0), options.input, options.batch));
  }
  const Tensor x = inputs.slice(0, 0, options.batch).clone();
  return x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast) : x;
}

struct Networks {
  std::shared_ptr<nn::Module> in_float, quantized;
};

Networks random_networks(const NetworkKind& kind, NetworkForm form) {
  constexpr std::uint64_t kSeed = 1;
  constexpr std::int64_t kCalibrationInputs = 8;
  manual_seed(kSeed);
  Networks networks{make_random_network(kind, NetworkForm::Float32, {}), nullptr};
  manual_seed(kSeed);
  networks.quantized = make_random_network(kind, form, random_inputs(kind, kCalibrationInputs));
  return networks;
}

Networks load_networks(const NetworkKind& kind, NetworkForm form, const ProfileOptions& options) {
  if (options.weights.empty()) return random_networks(kind, form);
  if (is_saved_model(options.weights)) {
    throw ArgumentError(fmt::format(
        "profile: --weights: expected float weights, which both networks are made of, got the "
        "quantized model {}",
        options.weights));
  }
  const Tensor calibration = options.calib.empty() ? Tensor() : read_inputs(kind, options.calib);
  return {load_float_network(kind, options.weights),
          load_network(kind, form, options.weights, calibration)};
}

/// The network as a plan for x, null with the reason when it cannot be one.
std::unique_ptr<Subject> frozen(const nn::Module& model, const Tensor& x, std::string& refusal) {
  try {
    return std::make_unique<Subject>(
        [plan = freeze(model, x)](const Tensor& input) { return plan(input); }, x);
  } catch (const Error& error) {
    refusal = error.what();
    return nullptr;
  }
}

}  // namespace

int run_profile(const ProfileOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const NetworkKind& kind = network_kind(options.model);
  const NetworkForm form = chosen_form(kind, options.dtype);
  const Device device = device_option(options.device);
  const Tensor on_cpu = first_batch(kind, options);
  const Networks networks = load_networks(kind, form, options);
  move_to_device("profile", *networks.quantized, on_cpu, device);
  const bool moves_float = missing_kernels(*networks.in_float, on_cpu, device).empty();
  if (moves_float) networks.in_float->to(device);
  if (device.is_cuda()) {
    fmt::print(
        "on {} ({}), {}; shares of peaks are those of the CPU's peaks\n", to_string(device),
        device_name(device),
        moves_float ? "float32 too" : "float32 on the CPU, as float layers have no kernels there");
  }
  const Tensor x = on_cpu.to(device);
  std::string refusal;
  Subject in_float = eager(networks.in_float, moves_float ? x : on_cpu);
  Subject quantized = eager(networks.quantized, x);
  const std::unique_ptr<Subject> plan = frozen(*networks.quantized, x, refusal);
  std::vector<Subject*> subjects{&in_float, &quantized};
  if (plan != nullptr) subjects.push_back(plan.get());

  for (Subject* subject : subjects) subject->warm_up();
  const Machine machine;
  for (int i = 0; i < options.repeats; ++i) {
    for (Subject* subject : subjects) subject->run();
  }

  ProfileResult result{.options = options,
                       .form = std::string(to_string(form)),
                       .machine = machine,
                       .types = {},
                       .comparison = compare_profiles(quantized.times(), in_float.times()),
                       .quantized = quantized.totals(),
                       .in_float = in_float.totals(),
                       .plan = {},
                       .plan_us = {},
                       .plan_refusal = refusal};
  for (const nn::Module::NamedModule& entry : networks.quantized->named_modules()) {
    result.types[entry.path] = entry.module->type_name();
  }
  if (plan != nullptr) {
    result.plan = plan->totals();
    const std::string type = networks.quantized->type_name();
    // Steps of the network itself are told under its class's name.
    for (const ModuleTime& module : plan->times()) {
      result.plan_us[module.path == type ? "" : module.path] = module.us;
    }
  }
  print_profile(result);
  if (!options.json.empty()) write_profile_json(result);
  if (!options.trace.empty()) {
    std::vector<ProfiledRun> runs{{result.form, quantized.last_events()},
                                  {"float32", in_float.last_events()}};
    if (plan != nullptr) runs.push_back({result.form + ", plan", plan->last_events()});
    write_chrome_trace(runs, options.trace);
  }
  return 0;
}

}  // namespace quanta::cli
