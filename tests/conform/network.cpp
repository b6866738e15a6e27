#include "network.h"

#include <fmt/core.h>

#include <map>
#include <stdexcept>

#include "quanta/runtime/error.h"

namespace quanta::conform {
namespace {

std::map<std::string, ModuleFactory, std::less<>>& factories() {
  static std::map<std::string, ModuleFactory, std::less<>> table;
  return table;
}

std::string member(const Json& description, const char* name) {
  if (!description.is_object() || !description.contains(name)) {
    throw FormatError(fmt::format("modules: '{}' is missing in {}", name, description.dump()));
  }
  return description.at(name).get<std::string>();
}

const Json& list(const Json& description, const char* name) {
  static const Json kNone = Json::array();
  return description.contains(name) ? description.at(name) : kNone;
}

/// F.add(children(x), shortcut(x)), F.add_relu with "relu".
class Residual : public Block {
 public:
  explicit Residual(const Json& description)
      : Block(description),
        main_(add_parts(list(description, "children"))),
        shortcut_(add_parts(list(description, "shortcut"))),
        relu_(description.value("relu", false)) {}

  Tensor forward(const Tensor& x) const override {
    const Tensor main = run(main_, x);
    const Tensor shortcut = run(shortcut_, x);
    return watched(relu_ ? functional().add_relu(main, shortcut)
                         : functional().add(main, shortcut));
  }
  std::string type_name() const override { return "Residual"; }

 private:
  Parts main_;
  Parts shortcut_;
  bool relu_;
};

/// F.mul(x, children(x)).
class SqueezeExcite : public Block {
 public:
  explicit SqueezeExcite(const Json& description)
      : Block(description), gate_(add_parts(list(description, "children"))) {}

  Tensor forward(const Tensor& x) const override {
    return watched(functional().mul(x, run(gate_, x)));
  }
  std::string type_name() const override { return "SqueezeExcite"; }

 private:
  Parts gate_;
};

/// F.cat([branch(x) for branch in branches], dim).
class Concat : public Block {
 public:
  explicit Concat(const Json& description)
      : Block(description), dim_(description.value("dim", std::int64_t{1})) {
    for (const Json& branch : list(description, "branches")) {
      branches_.push_back(add_parts(branch));
    }
  }

  Tensor forward(const Tensor& x) const override {
    std::vector<Tensor> results;
    for (const Parts& branch : branches_) results.push_back(run(branch, x));
    return watched(functional().cat(results, dim_));
  }
  std::string type_name() const override { return "Concat"; }

 private:
  std::vector<Parts> branches_;
  std::int64_t dim_;
};

std::shared_ptr<nn::Module> make_network_module(const Json& description) {
  const std::string type = member(description, "type");
  if (type == "Residual") return nn::make_module<Residual>(description);
  if (type == "SqueezeExcite") return nn::make_module<SqueezeExcite>(description);
  if (type == "Concat") return nn::make_module<Concat>(description);
  static const Json kNoArguments = Json::object();
  return make_module(type, description.contains("args") ? description.at("args") : kNoArguments);
}

}  // namespace

std::shared_ptr<nn::Module> make_module(const std::string& type, const Json& arguments) {
  const auto found = factories().find(type);
  if (found == factories().end()) {
    throw UnsupportedError(fmt::format("modules: no type {} here", type));
  }
  const Arguments given(arguments);
  // Whether an activation works in place does not change its results.
  bool in_place = false;
  given("inplace", in_place);
  std::shared_ptr<nn::Module> module = found->second(given);
  given.require_all_used(type);
  return module;
}

StateDict state_dict_from(const Object& values) {
  StateDict state;
  for (const auto& [name, value] : values.items) {
    const Tensor* tensor = value.get_if<Tensor>();
    if (tensor == nullptr) throw FormatError("inputs: state_dict: '" + name + "' is no tensor");
    state.set(name, *tensor);
  }
  return state;
}

ModuleRegistration::ModuleRegistration(
    std::initializer_list<std::pair<const char*, ModuleFactory>> list) {
  for (const auto& [type, factory] : list) {
    if (!factories().emplace(type, factory).second) {
      throw std::logic_error(fmt::format("conform: type '{}' is registered twice", type));
    }
  }
}

Network::Network(const Json& modules) {
  for (const Json& description : modules) {
    add_module(member(description, "name"), make_network_module(description));
  }
}

Block::Block(const Json& description) {
  functional_name_ = description.value("functional", std::string("functional"));
  functional_position_ = child_count();
  add_module(functional_name_, nn::make_module<nn::FloatFunctional>());
}

Block::Parts Block::add_parts(const Json& modules) {
  Parts parts;
  for (const Json& description : modules) {
    parts.push_back(child_count());
    add_module(member(description, "name"), make_network_module(description));
  }
  return parts;
}

Tensor Block::run(const Parts& parts, const Tensor& x) const {
  Tensor y = x;
  for (const std::size_t position : parts) y = (*child_at(position))(y);
  return y;
}

Tensor Block::watched(Tensor result) const {
  if (watcher_) watcher_(functional_name_, result);
  return result;
}

const nn::FloatFunctional& Block::functional() const {
  return dynamic_cast<const nn::FloatFunctional&>(*child_at(functional_position_));
}

}  // namespace quanta::conform
