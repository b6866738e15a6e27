#include "quanta/fusion/find_fusion_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>

#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/nn/misc.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"

namespace quanta {
namespace {

using nn::Module;

// What one run of a network shows of its leaves.
class LeafRun {
 public:
  LeafRun(Module& model, std::span<const Tensor> example) {
    const autograd::NoGradGuard no_grad;
    model.eval();
    std::string whole;  // the path of the last fused module, and a dot
    for (const Module::NamedModule& entry : model.named_modules()) {
      // The parts of a fused module are its own business: it counts as a leaf.
      if (!whole.empty() && entry.path.starts_with(whole)) continue;
      if (is_whole(*entry.module)) {
        whole = entry.path + ".";
      } else if (!entry.module->named_children().empty()) {
        continue;
      }
      leaves_[entry.path].module = entry.module;
      watch(*entry.module, leaves_[entry.path]);
    }
    std::vector<Tensor> inputs;
    for (const Tensor& x : example) {
      QUANTA_CHECK(x.defined(),
                   "find_fusion_groups: example: expected a tensor, got an undefined one");
      inputs.push_back(x.detach().clone(x.suggested_format()));
    }
    QUANTA_CHECK(!inputs.empty(), "find_fusion_groups: example: expected tensors, got none");
    static_cast<void>(
        model(std::span<const Tensor>(inputs)));  // packs what is packed at the first call
    for (auto& [path, leaf] : leaves_) leaf.calls.clear();
    const replay::Recording recording(inputs);
    for (const Tensor& y : model(std::span<const Tensor>(inputs))) {
      if (y.defined()) ++uses_[y.storage().get()];
    }
    for (const replay::Step& step : recording.steps()) {
      std::set<const Storage*> read;
      for (const Tensor& x : step.inputs) {
        if (x.defined()) read.insert(x.storage().get());
      }
      for (const Storage* storage : read) ++uses_[storage];
    }
  }

  LeafRun(const LeafRun&) = delete;
  LeafRun& operator=(const LeafRun&) = delete;

  // The only leaf that takes what the one at `path` gives, and all of it; "" where there is none.
  std::string next(const std::string& path) const {
    const Leaf& leaf = leaves_.at(path);
    if (leaf.calls.size() != 1) return {};
    const Tensor& result = leaf.calls[0].output;
    if (!result.defined()) return {};
    for (const auto& [other_path, other] : leaves_) {
      if (other_path == path || other.calls.size() != 1) continue;
      const Tensor& taken = other.calls[0].input;
      if (!taken.defined() || !other.calls[0].output.defined()) continue;
      const bool is_same = taken.storage().get() == result.storage().get() &&
                           taken.sizes() == result.sizes() && taken.strides() == result.strides();
      if (!is_same || dynamic_cast<const nn::Identity*>(other.module) != nullptr) continue;
      // Stubs and dropout give what they take: fusing across them would mean something else.
      const bool is_passed_on = other.calls[0].output.storage().get() == taken.storage().get();
      return !is_passed_on && is_used_once(result) ? other_path : std::string();
    }
    return {};
  }

  bool has(const std::string& path) const { return leaves_.contains(path); }
  std::size_t call_count(const std::string& path) const { return leaves_.at(path).calls.size(); }
  std::vector<std::pair<std::string, const Module*>> leaves() const {
    std::vector<std::pair<std::string, const Module*>> result;
    for (const auto& [path, leaf] : leaves_) result.emplace_back(path, leaf.module);
    std::sort(result.begin(), result.end(), [&](const auto& a, const auto& b) {
      return first_call(a.first) < first_call(b.first);
    });
    return result;
  }

 private:
  struct Call {
    Tensor input, output;
    std::size_t number;
  };
  struct Leaf {
    const Module* module = nullptr;
    std::vector<Call> calls{};
  };

  void watch(Module& module, Leaf& leaf) {
    hooks_.watch(module, [this, &leaf](const Tensor& input, const Tensor& output) {
      // A call without a tensor on both sides is noted all the same: it counts as one.
      leaf.calls.push_back({input, output, ++count_});
    });
  }
  bool is_used_once(const Tensor& x) const {
    const auto found = uses_.find(x.storage().get());
    return found != uses_.end() && found->second == 1;
  }
  std::size_t first_call(const std::string& path) const {
    const Leaf& leaf = leaves_.at(path);
    return leaf.calls.empty() ? 0 : leaf.calls[0].number;
  }

  ModuleHooks hooks_;
  std::map<std::string, Leaf> leaves_;
  std::map<const Storage*, std::size_t> uses_;
  std::size_t count_ = 0;
};

bool is_known(nn::FuseFor use, const std::vector<std::type_index>& types) {
  const std::vector<nn::FusionRule>& rules = nn::module_forms().fusions();
  return std::any_of(rules.begin(), rules.end(), [&](const nn::FusionRule& rule) {
    return rule.use == use && rule.sequence == types;
  });
}

std::size_t longest_rule() {
  std::size_t longest = 0;
  for (const nn::FusionRule& rule : nn::module_forms().fusions()) {
    longest = std::max(longest, rule.sequence.size());
  }
  return longest;
}

// The longest known sequence that begins at `first`.
std::vector<std::string> longest_group(const LeafRun& run, const Module& model,
                                       const std::string& first, nn::FuseFor use,
                                       const std::set<std::string>& taken) {
  std::vector<std::string> chain{first};
  std::vector<std::type_index> types;
  std::size_t known = 0;
  const auto add_type = [&](const std::string& path) {
    const std::shared_ptr<Module> module = model.get_submodule(path);
    const Module& leaf = *module;
    types.emplace_back(typeid(leaf));
  };
  add_type(first);
  const std::size_t limit = longest_rule();
  while (chain.size() < limit) {
    const std::string next = run.next(chain.back());
    if (next.empty() || taken.contains(next)) break;
    chain.push_back(next);
    add_type(next);
    if (is_known(use, types)) known = chain.size();
  }
  chain.resize(known);
  return chain;
}

}  // namespace

namespace detail {

FusionGroups find_fusion_groups_in(Module& copy, std::span<const Tensor> example, nn::FuseFor use) {
  const LeafRun run(copy, example);
  FusionGroups groups;
  std::set<std::string> taken;
  for (const auto& [path, module] : run.leaves()) {
    if (path.empty() || taken.contains(path) || run.call_count(path) != 1) continue;
    std::vector<std::string> group = longest_group(run, copy, path, use, taken);
    if (group.empty()) continue;
    taken.insert(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

void require_adjacent(Module& copy, std::span<const Tensor> example, const FusionGroups& groups) {
  const LeafRun run(copy, example);
  for (const std::vector<std::string>& group : groups) {
    for (std::size_t i = 0; i + 1 < group.size(); ++i) {
      QUANTA_CHECK(run.has(group[i]) && run.has(group[i + 1]),
                   "fuse_modules: groups: expected layers, got '{}' with modules below",
                   run.has(group[i]) ? group[i + 1] : group[i]);
      const std::string next = run.next(group[i]);
      if (next == group[i + 1]) continue;
      const std::size_t calls = run.call_count(group[i]);
      throw ArgumentError(fmt::format(
          "fuse_modules: groups: expected '{}' to be the only one that takes the result of '{}' in "
          "the run of the example, got {} (find_fusion_groups finds the groups of a network)",
          group[i + 1], group[i],
          calls != 1 ? fmt::format("{} calls of '{}'", calls, group[i])
                     : (next.empty() ? std::string("others") : fmt::format("'{}'", next))));
    }
  }
}

}  // namespace detail

}  // namespace quanta
