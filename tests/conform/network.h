#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arguments.h"
#include "quanta/nn/container.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/module.h"

namespace quanta::conform {

/// Tensors by name, as cases hold a module's parameters. Throws FormatError for other values.
StateDict state_dict_from(const Object& values);

using ModuleFactory = std::function<std::shared_ptr<nn::Module>(const Arguments&)>;

/// Adds module types while it is constructed, by torch's name; a later family is one more file.
class ModuleRegistration {
 public:
  ModuleRegistration(std::initializer_list<std::pair<const char*, ModuleFactory>> factories);
};

/// The factory of a module whose constructor takes P..., from their names; options have none.
template <typename T, typename... P>
ModuleFactory factory(std::initializer_list<Parameter> parameters = {}) {
  return [list = std::vector<Parameter>(parameters)](const Arguments& given) {
    Parameters names(list);
    // The braces give the order from left to right.
    const std::tuple<P...> values{read_setting<P>(given, names)...};
    names.require_all_used();
    return std::apply([](const P&... each) { return nn::make_module<T>(each...); }, values);
  };
}

/// A module of a registered type. Throws UnsupportedError for a type or an argument that is not
/// known here.
std::shared_ptr<nn::Module> make_module(const std::string& type, const Json& arguments);

/// A network of a pipeline case: its modules run in order.
class Network : public nn::Sequential {
 public:
  /// From attrs.modules. Throws UnsupportedError for types that Quanta does not have, FormatError.
  explicit Network(const Json& modules);
  std::string type_name() const override { return "Network"; }
};

/// Told the name and the result of every FloatFunctional operation.
using ResultWatcher = std::function<void(const std::string& name, const Tensor& result)>;

/// What the nested blocks share: parts that run in order and a FloatFunctional that joins them.
class Block : public nn::Module {
 public:
  void set_watcher(ResultWatcher watcher) { watcher_ = std::move(watcher); }

 protected:
  /// Positions of children among the block's children.
  using Parts = std::vector<std::size_t>;

  explicit Block(const Json& description);
  Parts add_parts(const Json& modules);
  Tensor run(const Parts& parts, const Tensor& x) const;
  Tensor watched(Tensor result) const;
  const nn::FloatFunctional& functional() const;

 private:
  std::string functional_name_;
  std::size_t functional_position_ = 0;
  ResultWatcher watcher_;
};

}  // namespace quanta::conform
