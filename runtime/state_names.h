#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/state_dict.h"

/// Changing the names of a StateDict. Plain values: threads may share what none of them changes.
/// Tensors are shared with the state that was given.
namespace quanta {

/// `state` with `prefix` taken from the names that begin with it; the others stay. What
/// DistributedDataParallel ("module.") and torch.compile ("_orig_mod.") put before all names. Same
/// as torch.nn.modules.utils.consume_prefix_in_state_dict_if_present, with a state as the result.
/// Throws ArgumentError for an empty prefix, and when two tensors would have one name.
StateDict strip_prefix(const StateDict& state, std::string_view prefix);

/// Rules for names, of which the first that fits decides:
///
///   RenameTable()
///       .add_prefix("backbone.", "features.")
///       .add_regex(R"(layer(\d)_(\d)_relu_scale_0)", "layer$1.$2.add_relu.scale")
///       .drop_regex(".*num_batches_tracked")
///
/// Many threads may use one table while nobody adds to it.
class RenameTable {
 public:
  /// A name that begins with `from` begins with `to` instead. Throws ArgumentError for an empty
  /// `from`: rules that fit every name are written as a regex.
  RenameTable& add_prefix(std::string from, std::string to);
  /// A name that `pattern` (ECMAScript, std::regex) matches as a whole becomes `replacement`, in
  /// which $1, $2, ... are the groups. Throws ArgumentError for a pattern that is no regex.
  RenameTable& add_regex(std::string pattern, std::string replacement);
  /// A name that `pattern` matches as a whole is left out.
  RenameTable& drop_regex(std::string pattern);

  struct Rule {
    enum class Kind : std::uint8_t { Prefix, Regex, Drop } kind = Kind::Prefix;
    std::string from;
    std::string to;
  };
  const std::vector<Rule>& rules() const noexcept { return rules_; }

 private:
  std::vector<Rule> rules_;
};

/// `state` with the names that the table gives; names that no rule fits stay. The order stays.
/// Throws ArgumentError when two tensors would have one name (the text says which), for an empty
/// new name, and for names of more than 1024 bytes where the table has a regex.
StateDict rename(const StateDict& state, const RenameTable& table);

}  // namespace quanta
