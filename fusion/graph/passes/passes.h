#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/module.h"

/// What rewrites graphs. Each is a plain function that gives whether it changed anything; they may
/// be called in any order, and load_onnx calls them in a good one. They are for one thread at a time
/// for each graph.
namespace quanta::graph {

/// Inputs of these names become constants. Throws ArgumentError for a name that is no input, and for
/// another dtype than the input's.
bool bind_constants(Graph& graph, const NamedTensors& constants);

/// Throws FileError that names node and tensor for scales of codes, in the file, that are NaN or
/// infinite (see docs/files.md). A scale of 0 stands for a channel of zeros.
void check_scales(const Graph& graph);

/// Calculates what depends on constants alone; takes the branch of an If whose condition is constant
/// into the graph. Constants of more than a megabyte that an operator blows up (ConstantOfShape,
/// Expand, Tile ...) are left to be calculated in each run.
/// With Fold::AllButCodes DequantizeLinear of constants stays, for the passes that make int8 layers
/// of it.
enum class Fold : std::uint8_t { All, AllButCodes };
bool fold_constants(Graph& graph, Fold fold = Fold::All);

/// Layers that save_onnx wrote as several nodes become the modules again that they were, as the
/// file's metadata says, and are added to `children`. Nodes that somebody else has changed since
/// then are left to the other passes. Before anything is folded.
bool restore_layers(Graph& graph, const std::map<std::string, std::string>& metadata,
                    std::vector<nn::Module::NamedChild>& children);

/// The float biases of which save_onnx wrote Int32 codes take their places, where the codes are
/// still theirs.
bool restore_biases(Graph& graph, const std::map<std::string, std::string>& metadata);

/// Drops Identity, Dropout and Cast that change nothing.
bool drop_identity(Graph& graph);

/// Layers with constant weights of 16-bit floats become layers of Float32 between casts, which is
/// what they mean here: so they are modules, whose weights are prepared once.
bool widen_layers(Graph& graph);

/// HardSwish, HardSigmoid, Swish (SiLU) and Gelu that are written as several operators become one.
bool fuse_activations(Graph& graph);

/// QLinearConv and its like become the operator of ONNX between DequantizeLinear and
/// QuantizeLinear, where their scales are constants.
bool expand_qoperators(Graph& graph);

/// Scales of each channel of what depthwise convolutions take move into the scales of weights, so
/// that one scale is left.
bool fold_channel_scales(Graph& graph);

/// DynamicQuantizeLinear, MatMulInteger or ConvInteger, Cast, Mul and Add become one layer behind
/// DynamicQuantizeLinear.
bool lower_dynamic(Graph& graph);

/// MatMulNBits, and MatMul and Gemm with a constant in blocks or of 4 bits, become weight-only linear
/// layers, which are added to `children`.
bool lower_weight_only(Graph& graph, std::vector<nn::Module::NamedChild>& children);

/// Transpose, Reshape and their like of dequantized constants are done on the codes.
bool move_constant_codes(Graph& graph);

/// All passes that make an int8 graph of quantized operators, in order.
bool lower_quantized(Graph& graph, std::vector<nn::Module::NamedChild>& children,
                     bool torch_arithmetic = false);

/// Layers of 16-bit codes with weights of 8 bits become two layers of 8-bit codes, of the high and of
/// the low bytes, whose results are added: sums of codes are exact, where float arithmetic is off by
/// hundredths of a code. Before absorb_qdq.
bool split_wide_codes(Graph& graph);

/// QuantizeLinear and DequantizeLinear of 8 bits and one scale become annotations: a value with
/// `codes` stands for the numbers of its codes, for all who take it, and nodes "Quantize" make such
/// values of floats. All codes are QUInt8: signed ones and their zero points grow by 128.
bool absorb_qdq(Graph& graph);

/// Gather from 256 constants at the places that codes say becomes an operation on the codes, and
/// coded values begin before what only moves the file's integers. After absorb_qdq.
bool absorb_tables(Graph& graph);

/// What absorb_qdq has made quantizes by multiplication with the reciprocal of the scale, as torch
/// and Quanta's own quantization do, and not by division: for files of models that were quantized
/// here.
bool use_torch_arithmetic(Graph& graph);

/// Codes go through what only moves numbers: forward from where they are made, backward from where
/// they are wanted.
bool spread_codes(Graph& graph);

/// Nodes between codes become int8 operations and modules, which are added to `children`; functions
/// of one code become tables, and what stays in float gets its codes dequantized, and says why in
/// Node::float_reason. After absorb_qdq, whose annotations no float operator can read.
bool lower_codes(Graph& graph, std::vector<nn::Module::NamedChild>& children);

/// A BatchNormalization behind a Conv or ConvTranspose of its own, all with constant parameters, goes
/// into the weight and bias, by the same arithmetic as fuse_modules.
bool fold_batch_norm(Graph& graph);

/// Additions, multiplications and functions of codes that all come from the codes of one value, each
/// element from the one at its place, become one table: the same codes, looked up. After lower_codes.
bool merge_tables(Graph& graph);

/// Mul, Div, Add and Sub with a constant number, or one for each channel, behind a Conv or
/// ConvTranspose of their own with constant parameters go into the weight and bias.
bool fold_scales(Graph& graph);

/// Element types of values that the file does not declare, as they follow from the operators.
bool follow_types(Graph& graph);

/// A child module for each node whose row has one (see OpRow::make_module), named after the node;
/// the node's constants that the module holds are its parameters.
/// Names of `taken` are not given again.
std::vector<nn::Module::NamedChild> make_modules(
    Graph& graph, const std::vector<nn::Module::NamedChild>& taken = {});

}  // namespace quanta::graph
