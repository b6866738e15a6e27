#include "quanta/nn/optim/checkpoint.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::optim {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";
// Keys of the metadata.
constexpr const char* kVersion = "quanta.checkpoint";
constexpr const char* kGenerator = "generator";
constexpr const char* kScheduler = "scheduler.last_step";
constexpr std::string_view kCounter = "counter.";

void add_with_prefix(StateDict& to, std::string_view prefix, const StateDict& from) {
  for (const auto& [name, tensor] : from) to.set(std::string(prefix) + name, tensor);
}

std::int64_t whole_number(const std::string& text, const std::string& where) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw FileError(fmt::format("{}: expected a whole number, got '{}'", where, text));
  }
  return value;
}

/// A checkpoint's file, read and taken apart; nothing is in use yet.
struct Contents {
  StateDict model;
  StateDict optimizer;
  std::optional<std::int64_t> scheduler_step;
  Generator generator;
  Counters counters;
};

Contents read_contents(const std::filesystem::path& path) {
  const std::string where = "load_checkpoint: " + path.string();
  const SafetensorsFile file = load_safetensors(path);
  const auto version = file.metadata.find(kVersion);
  if (version == file.metadata.end() || version->second != "1") {
    throw FileError(fmt::format(
        "{}: {}: expected 1, got {}", where, kVersion,
        version == file.metadata.end() ? "nothing: no training checkpoint" : version->second));
  }
  Contents contents;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kModel)) {
      contents.model.set(name.substr(kModel.size()), tensor);
    } else if (name.starts_with(kOptimizer)) {
      contents.optimizer.set(name.substr(kOptimizer.size()), tensor);
    } else {
      throw FileError(
          fmt::format("{}: tensor '{}': expected only those of model and optimizer", where, name));
    }
  }
  const auto generator = file.metadata.find(kGenerator);
  if (generator == file.metadata.end()) {
    throw FileError(fmt::format("{}: {}: expected its state, got nothing", where, kGenerator));
  }
  try {
    contents.generator.set_state(generator->second);
  } catch (const ArgumentError& error) {
    throw FileError(fmt::format("{}: {}: {}", where, kGenerator, error.what()));
  }
  for (const auto& [key, value] : file.metadata) {
    const std::string at = fmt::format("{}: {}", where, key);
    if (key == kScheduler) contents.scheduler_step = whole_number(value, at);
    if (key.starts_with(kCounter)) {
      contents.counters.emplace(key.substr(kCounter.size()), whole_number(value, at));
    }
  }
  return contents;
}

}  // namespace

void save_checkpoint(const TrainingParts& training, const std::filesystem::path& path,
                     const Counters& counters) {
  StateDict tensors;
  add_with_prefix(tensors, kModel, training.model.state_dict());
  add_with_prefix(tensors, kOptimizer, training.optimizer.state_dict());
  std::map<std::string, std::string> metadata{{kVersion, "1"},
                                              {kGenerator, training.generator.state()}};
  if (training.scheduler != nullptr) {
    metadata.emplace(kScheduler, std::to_string(training.scheduler->last_step()));
  }
  for (const auto& [name, value] : counters) {
    metadata.emplace(std::string(kCounter) + name, std::to_string(value));
  }
  write_safetensors(tensors, path, metadata);
}

Counters load_checkpoint(const std::filesystem::path& path, const TrainingParts& training,
                         const std::vector<std::string>& required) {
  Contents contents = quanta::detail::reading("load_checkpoint: " + path.string(),
                                              [&] { return read_contents(path); });
  for (const std::string& name : required) {
    if (contents.counters.contains(name)) continue;
    throw FileError(
        fmt::format("load_checkpoint: {}: {}{}: expected a whole number, got nothing: the "
                    "checkpoint of another "
                    "kind of training",
                    path.string(), kCounter, name));
  }
  LRScheduler* scheduler = training.scheduler;
  QUANTA_CHECK(
      contents.scheduler_step.has_value() == (scheduler != nullptr),
      "load_checkpoint: {}: expected a training {} a scheduler as the file has it, got one {}",
      path.string(), contents.scheduler_step ? "with" : "without",
      contents.scheduler_step ? "without" : "with");
  // Each of the three changes nothing when it throws; what went before it is put back.
  const StateDict optimizer_before = training.optimizer.state_dict();
  const std::int64_t step_before = scheduler == nullptr ? 0 : scheduler->last_step();
  training.optimizer.load_state_dict(contents.optimizer);
  try {
    if (scheduler != nullptr) scheduler->set_last_step(*contents.scheduler_step);
    training.model.load_state_dict(contents.model);
  } catch (...) {
    training.optimizer.load_state_dict(optimizer_before);
    if (scheduler != nullptr) {
      scheduler->set_last_step(step_before);
      // Learning rates that were set by hand.
      training.optimizer.load_state_dict(optimizer_before);
    }
    throw;
  }
  training.generator = contents.generator;
  return std::move(contents.counters);
}

}  // namespace quanta::optim
