#pragma once

// Private: packed weights in save_model's files.
//
// The tensor `quanta.packed` holds the forms of all weights one behind the other, each at a multiple
// of 64 bytes of the file, and stands first. Its elements have eight bytes because writers put such
// tensors first. In the metadata stands what they are:
//
//   quanta.packed   {"format": 1, "forms": [["conv1.weight", "panels 1, ...", 0, 4096,
//                                            "<hash of the codes>", "<hash of the form>"], ...]}
//
// with the beginning and the number of bytes. Names are for readers: a form belongs to the codes
// with that hash, whatever their name.

#include <map>
#include <memory>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/runtime/detail/packed_forms.h"
#include "quanta/runtime/state_dict.h"

namespace quanta {

/// Puts the forms of all weights of `state`, which is the model's, in front of it, and what they are
/// into `metadata`. Throws ArgumentError when there are none.
void add_packed_weights(StateDict& state, std::map<std::string, std::string>& metadata);

/// Takes what add_packed_weights put there out of `state`; null when nothing is there or another
/// version wrote it. Throws FileError for what add_packed_weights does not write.
std::shared_ptr<const detail::SavedForms> take_packed_weights(
    StateDict& state, const std::map<std::string, std::string>& metadata, const std::string& where);

}  // namespace quanta
