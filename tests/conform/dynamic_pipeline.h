#pragma once

#include "network.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "suite.h"
#include "value.h"

namespace quanta::conform {

/// attrs.qconfig_spec: QConfigs by name, of module types or of module paths.
DynamicSpec dynamic_spec_of(const Case& test);

/// What quantize_dynamic left in the network: types, weights and biases of modules with integer
/// weights, by path.
Object dynamic_modules_of(const Network& net);

/// The integer weights of a recurrent layer or cell, `weight_ih_l0_reverse`, or its biases; empty
/// for other modules.
enum class RnnPart : bool { Weights, Biases };
Object recurrent_parts(const nn::Module& module, RnnPart part);

}  // namespace quanta::conform
