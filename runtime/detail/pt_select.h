#pragma once

// Private: one value of a file of torch.save, by its key.

#include <string>
#include <string_view>

#include "quanta/runtime/detail/pickle_reader.h"

namespace quanta::detail {

/// The value under `key` ("model", "state/model"; a key that holds a slash itself comes first), or
/// the root for an empty one. Throws FileError `<where>: ...` that lists the keys there are.
const PickleNode& select_value(const PickleNode& root, std::string_view key,
                               std::string_view where);

/// Throws FileError `<where>: ...` when `value` is no state_dict but a whole module, or a dict that
/// holds a state_dict under one of its keys: the text lists the keys and says which to give.
void expect_state_dict(const PickleNode& value, std::string_view key, std::string_view where);

/// "'epoch' (an integer), 'model' (a dict with 62 tensors)": the keys of a dict, for messages.
std::string list_keys(const PickleNode& dict);

}  // namespace quanta::detail
