#include "quanta/nn/detail/state_advice.h"

#include <algorithm>
#include <string_view>

#include "quanta/runtime/check.h"

namespace quanta::nn::detail {
namespace {

constexpr std::size_t kMaxCandidates = 100;

/// What stands before all missing names in the state; empty when there is no such text.
std::string prefix_of_all(const StateDict& state, const std::vector<std::string>& missing,
                          const std::vector<std::string>& unexpected) {
  if (missing.empty()) return {};
  std::size_t candidates = 0;
  for (const std::string& name : unexpected) {
    if (!name.ends_with(missing.front()) || name.size() == missing.front().size()) continue;
    const std::string prefix = name.substr(0, name.size() - missing.front().size());
    if (prefix.back() != '.' && prefix.back() != '/') continue;
    if (++candidates > kMaxCandidates) return {};
    const bool has_all = std::all_of(missing.begin(), missing.end(), [&](const std::string& other) {
      return state.contains(prefix + other);
    });
    if (has_all) return prefix;
  }
  return {};
}

/// What is missing in the file although the model has it under a prefix that the file's names lack.
std::string prefix_of_model(const StateDict& own, const std::vector<std::string>& missing,
                            const std::vector<std::string>& unexpected) {
  if (unexpected.empty()) return {};
  for (const std::string& name : missing) {
    if (!name.ends_with("." + unexpected.front())) continue;
    const std::string prefix = name.substr(0, name.size() - unexpected.front().size());
    const bool has_all =
        std::all_of(unexpected.begin(), unexpected.end(),
                    [&](const std::string& other) { return own.contains(prefix + other); });
    if (has_all) return prefix;
    return {};
  }
  return {};
}

bool has_quantized(const StateDict& state) {
  return std::any_of(state.begin(), state.end(), [](const StateDict::Entry& entry) {
    return entry.second.defined() && entry.second.is_quantized();
  });
}

bool has_observers(const StateDict& state) {
  return std::any_of(state.begin(), state.end(), [](const StateDict::Entry& entry) {
    return entry.first.find("activation_post_process.") != std::string::npos;
  });
}

/// Whether a name without a fused module's ".0" stands among `plain`: "conv1.0.weight" is the
/// weight of a fused "conv1".
bool has_unfused(const std::vector<std::string>& fused, const StateDict& plain) {
  constexpr std::string_view kFirst = ".0.";
  return std::any_of(fused.begin(), fused.end(), [&](const std::string& name) {
    const std::size_t place = name.rfind(kFirst);
    return place != std::string::npos &&
           plain.contains(name.substr(0, place + 1) + name.substr(place + kFirst.size()));
  });
}

}  // namespace

std::string state_advice(const StateDict& state, const StateDict& own,
                         const std::vector<std::string>& missing,
                         const std::vector<std::string>& unexpected) {
  std::string text;
  if (const std::string prefix = prefix_of_all(state, missing, unexpected); !prefix.empty()) {
    text += fmt::format("\n  all missing names stand under '{}' in the state: ", prefix);
    if (prefix.back() == '/') {
      text += fmt::format("read that part of the file: read_pt_state_dict(path, \"{}\")",
                          std::string_view(prefix).substr(0, prefix.size() - 1));
    } else {
      text += fmt::format("take it off with strip_prefix(state, \"{}\")", prefix);
    }
  } else if (const std::string own_prefix = prefix_of_model(own, missing, unexpected);
             !own_prefix.empty()) {
    text += fmt::format(
        "\n  the state's names stand under '{0}' in the model: load it into "
        "model.get_submodule(\"{1}\")",
        own_prefix, std::string_view(own_prefix).substr(0, own_prefix.size() - 1));
  }
  const bool quantized_state = has_quantized(state);
  const bool quantized_model = has_quantized(own);
  if (quantized_state && !quantized_model) {
    text +=
        "\n  the state is that of a quantized model, and this one is not: load_model(model, path) "
        "reads the files of save_model into a float network; an int8 state_dict of PyTorch is for "
        "a network after fuse_modules, prepare and convert with Uncalibrated::Allow";
  } else if (!quantized_state && quantized_model) {
    text +=
        "\n  the state is that of a float model, and this one is quantized: load the state first, "
        "then prepare, calibrate and convert";
  } else if (!has_observers(own) && has_observers(state)) {
    text +=
        "\n  the state is that of a prepared model, and this one is not: prepare it with the same "
        "QConfigs first; load_model(model, path, qconfigs) does so for the files of save_model";
  } else if (has_observers(own) && !has_observers(state)) {
    text +=
        "\n  the model is prepared, and the state is not that of a prepared one: load the state "
        "before prepare";
  } else if (has_unfused(missing, state)) {
    text +=
        "\n  the model is fused, and the state is not: load the state into the float network, then "
        "call fuse_modules";
  } else if (has_unfused(unexpected, own)) {
    text +=
        "\n  the state is that of a fused model, and this one is not: call fuse_modules with the "
        "same groups first; load_model(model, path) does so for the files of save_model";
  }
  return text;
}

}  // namespace quanta::nn::detail
