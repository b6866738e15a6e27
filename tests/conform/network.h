#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/module.h"
#include "suite.h"

namespace quanta::conform {

/// Constructor arguments of a module by torch's names. Notes which were asked for, so that one that
/// no factory knows is not passed over in silence.
class Arguments {
 public:
  explicit Arguments(const Json& json) : json_(&json) {}

  std::int64_t integer(const char* name) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  double number(const char* name, double otherwise) const;
  std::vector<double> numbers(const char* name, const std::vector<double>& otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  bool is_text(const char* name) const;
  /// Whether it was given as null (None).
  bool is_null(const char* name) const;
  Dims dims(const char* name) const;
  Dims dims(const char* name, const Dims& otherwise) const;

  /// Throws UnsupportedError for an argument that was given but never asked for.
  void require_all_used(std::string_view type) const;

 private:
  const Json* find(const char* name) const;

  const Json* json_;
  mutable std::set<std::string> used_;
};

/// Tensors by name, as cases hold a module's parameters. Throws FormatError for other values.
StateDict state_dict_from(const Object& values);

using ModuleFactory = std::function<std::shared_ptr<nn::Module>(const Arguments&)>;

/// Adds module types while it is constructed, by torch's name; a later family is one more file.
class ModuleRegistration {
 public:
  ModuleRegistration(std::initializer_list<std::pair<const char*, ModuleFactory>> factories);
};

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
