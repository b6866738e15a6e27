#pragma once

// Private: what stays in float within the quantized part of a network (see nn/forward_calls.h).

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

namespace quanta {

/// Modules with a QConfig that are not replaced themselves begin to observe the calls in their
/// forward; modules with a null QConfig below them are such calls.
void watch_forward_calls(nn::Module& root, const ModuleMapping& mapping,
                         const CustomModuleMapping& custom);

/// What the lists below `root` become when it is converted; lists without a scale become null.
using ConvertedCalls = std::vector<std::pair<nn::Module*, std::shared_ptr<nn::ForwardCalls>>>;
/// Throws nothing; `problems` gets a line for each list that cannot be converted.
ConvertedCalls convert_forward_calls(const nn::Module& root, std::string& problems);

/// Of the calls that `prepared` observes only those go on that ran on codes, or between floats, in
/// `trial`, a converted copy that has run; their observers begin anew.
void keep_calls_that_ran(nn::Module& prepared, const nn::Module& trial);

}  // namespace quanta
