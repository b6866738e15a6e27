#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quanta/runtime/tensor.h"

/// The steps of one recurrent layer in one direction, which float, float16 and int8 layers share:
/// only the product with the hidden state differs between them.
///
/// Many threads may call these functions at once while nobody writes to the arguments. What each
/// throws is said below.
namespace quanta {

/// The kind of a layer. With the input gates x (W_ih x + b_ih of the step) and the hidden gates h
/// (W_hh h + b_hh), both [gates * hidden] in this order, torch's formulas are:
///
///   RnnTanh, RnnRelu  h' = tanh(x + h) or relu(x + h)
///   Lstm  i, f, g, o  c' = sigmoid(f) * c + sigmoid(i) * tanh(g);  h' = sigmoid(o) * tanh(c')
///   Gru   r, z, n     n = tanh(xn + sigmoid(xr + hr) * hn);  h' = (h - n) * sigmoid(xz + hz) + n
enum class RecurrentKind : std::uint8_t { RnnTanh, RnnRelu, Lstm, Gru };

/// How many gates a kind has: 1 (RNN), 4 (LSTM) or 3 (GRU).
std::int64_t gate_count(RecurrentKind kind);

namespace detail {
class CudaProduct;
struct LayerSteps;
}  // namespace detail

/// A product of hidden states with a packed weight, W h + b: that of W_hh in every step, and that
/// of an LSTM's projection W_hr. Many threads may call one at once. Plans share it, so it lives in
/// a shared_ptr where a network is frozen.
class HiddenProduct : public std::enable_shared_from_this<HiddenProduct> {
 public:
  HiddenProduct() = default;
  HiddenProduct(const HiddenProduct&) = delete;
  HiddenProduct& operator=(const HiddenProduct&) = delete;
  virtual ~HiddenProduct() = default;
  /// K and N: recurrent_steps checks that they are those of its states and gates.
  virtual std::int64_t in_features() const noexcept = 0;
  virtual std::int64_t out_features() const noexcept = 0;
  /// h [rows, K] to out [rows, N], both dense; rows >= 1.
  virtual void operator()(const float* h, std::int64_t rows, float* out) const = 0;
  /// Runs all steps of a layer at once, if the product has a kernel for them; else false, and
  /// nothing has happened. recurrent_steps asks this first.
  virtual bool run_layer(const detail::LayerSteps& layer) const;
  /// What recurrent_steps multiplies with on CUDA devices; null: there is no kernel for them.
  virtual const detail::CudaProduct* on_cuda() const noexcept;
};

/// The product with a Float32 weight [N, K] and bias [N] (may be undefined), copied and packed.
/// Throws ArgumentError for other dtypes and sizes.
std::shared_ptr<const HiddenProduct> float_hidden_product(const Tensor& weight, const Tensor& bias);

enum class StepOrder : std::uint8_t { Forward, Reverse };

struct RecurrentSteps {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden_size = 0;
  /// How many sequences have each step, the longest first; never grows.
  std::span<const std::int64_t> batch_sizes{};
  StepOrder order = StepOrder::Forward;
  /// From h (output size) to the hidden gates.
  const HiddenProduct* hidden = nullptr;
  /// LSTM with projections: from [hidden_size] to h [output_size].
  const HiddenProduct* projection = nullptr;
};

struct RecurrentResult {
  Tensor output;  ///< h of every step, [sum of batch_sizes, output size], in the order of the input
  Tensor h_n;     ///< h after each sequence's last step (Reverse: its first), sizes of h_0
  Tensor c_n;     ///< the same of the cell; Lstm only
};

/// Runs all steps. `input_gates` is Float32 [sum of batch_sizes, gates * hidden_size], step by step
/// as in nn::PackedSequence; h_0 [batch_sizes[0], output size] (hidden_size without a projection),
/// c_0 [batch_sizes[0], hidden_size] for Lstm. A sequence that has ended keeps its state; in
/// Reverse order it joins at its last step. No memory is allocated per step.
///
/// sigmoid and tanh are vectorised: within 5 units in the last place of the exact value where that
/// is a normal number; the same floats on every instruction set and with any number of threads. On
/// CUDA devices too, with int8 and Float16 weights (ops/rnn_dynamic.h); with Float32 ones the
/// products there are cuBLASLt's, and differ by the order of their sums. Gradients have no kernel
/// for CUDA.
/// Throws ArgumentError for sizes that do not fit together, UnsupportedError for a tensor that
/// requires a gradient.
RecurrentResult recurrent_steps(const RecurrentSteps& steps, const Tensor& input_gates,
                                const Tensor& h_0, const Tensor& c_0 = {});

/// The weights of the steps: weight_hh [gates * hidden_size, output size], bias_hh or none, and the
/// projection weight_hr [output size, hidden_size] or none.
struct StepWeights {
  Tensor weight_hh{};
  Tensor bias_hh{};
  Tensor weight_hr{};
};

/// The same with plain weights in place of `steps.hidden` and `steps.projection`, which are not
/// read, and with gradients of the gates, the weights, h_0 and c_0. All tensors are Float32, or all
/// Float64 (plain loops, for checks of gradients).
///
/// When a gradient is asked for, the gates of every step are kept (LSTM 6, GRU 4 numbers a unit);
/// the way back is one matrix product a step and one for all steps for each weight.
RecurrentResult recurrent_steps(const RecurrentSteps& steps, const StepWeights& weights,
                                const Tensor& input_gates, const Tensor& h_0,
                                const Tensor& c_0 = {});

}  // namespace quanta
