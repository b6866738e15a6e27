#pragma once

// Private: what prepare and prepare_qat put into a model whose modules have their QConfigs.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

namespace quanta {

/// Throws ArgumentError for a model that is prepared or converted already; `op` is for the message.
void require_unprepared(const nn::Module& model, std::string_view op);

/// Attaches the activation observer of the module's QConfig, if it has one, as the module's kind is
/// observed.
void insert_observer(nn::Module& module);

/// What `from_float` makes of a custom module; its parts inherit the QConfig. Throws ArgumentError
/// naming `path`.
std::shared_ptr<nn::Module> make_observed(const nn::Module& module, const FromFloat& from_float,
                                          const QConfig& qconfig, const std::string& path);

/// Makes the observed forms of the custom modules that have a QConfig, without putting them in
/// place.
class CustomModulePlan {
 public:
  explicit CustomModulePlan(const CustomModuleMapping& custom) : custom_(custom) {}

  void visit(nn::Module& parent, const std::string& prefix);
  /// The modules that visit made, each once.
  std::vector<nn::Module*> observed() const;
  void put_in_place() const;
  /// Observers for the results of those that want it.
  void observe_outputs() const;

 private:
  struct Replacement {
    nn::Module* parent;
    std::string name;
    std::shared_ptr<nn::Module> observed;
    OutputObserver output;
  };

  const CustomModuleMapping& custom_;
  std::set<const nn::Module*> seen_;
  // So that shared modules stay shared.
  std::map<const nn::Module*, std::shared_ptr<nn::Module>> made_;
  std::vector<Replacement> replacements_;
};

}  // namespace quanta
