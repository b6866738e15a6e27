// The gate functions in Float64, for proofs of gradients: written by the formulas, without vectors.

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "quanta/ops/rnn/cpu_kernels.h"

namespace quanta::cpu {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double back_sigmoid(double gradient, double y) { return gradient * y * (1.0 - y); }
double back_tanh(double gradient, double y) { return gradient * (1.0 - y * y); }

// The row `number` of gates or of what was kept.
template <typename T>
T* part(const GateRow<double>& row, T* numbers, std::int64_t number) {
  return numbers + number * row.hidden;
}

void keep(const GateRow<double>& row, std::int64_t i, std::initializer_list<double> values) {
  if (row.kept == nullptr) return;
  std::int64_t number = 0;
  for (const double value : values) part(row, row.kept, number++)[i] = value;
}

}  // namespace

void lstm_gates(const GateRow<double>& row, double* out) {
  for (std::int64_t i = 0; i < row.hidden; ++i) {
    const auto sum = [&](std::int64_t gate) {
      return part(row, row.x, gate)[i] + part(row, row.h, gate)[i];
    };
    const double input = sigmoid(sum(0));
    const double forget = sigmoid(sum(1));
    const double cell = std::tanh(sum(2));
    const double output = sigmoid(sum(3));
    const double c = forget * row.state[i] + input * cell;
    keep(row, i, {input, forget, cell, output, std::tanh(c), c});
    row.state[i] = c;
    out[i] = output * std::tanh(c);
  }
}

void gru_gates(const GateRow<double>& row) {
  for (std::int64_t i = 0; i < row.hidden; ++i) {
    const auto x = [&](std::int64_t gate) { return part(row, row.x, gate)[i]; };
    const auto h = [&](std::int64_t gate) { return part(row, row.h, gate)[i]; };
    const double reset = sigmoid(x(0) + h(0));
    const double update = sigmoid(x(1) + h(1));
    const double candidate = std::tanh(x(2) + reset * h(2));
    keep(row, i, {reset, update, candidate, h(2)});
    row.state[i] = (row.state[i] - candidate) * update + candidate;
  }
}

void rnn_tanh_gates(const GateRow<double>& row) {
  for (std::int64_t i = 0; i < row.hidden; ++i) row.state[i] = std::tanh(row.x[i] + row.h[i]);
}

void rnn_relu_gates(const GateRow<double>& row) {
  for (std::int64_t i = 0; i < row.hidden; ++i) row.state[i] = std::max(row.x[i] + row.h[i], 0.0);
}

void lstm_gradient(const GateGradient<double>& row) {
  const std::int64_t n = row.hidden;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto kept = [&](std::int64_t number) { return row.kept[number * n + i]; };
    const double for_h = row.for_h[i];
    const double for_c = row.for_c[i] + back_tanh(for_h * kept(3), kept(4));
    row.for_x[i] = back_sigmoid(for_c * kept(2), kept(0));
    row.for_x[n + i] = back_sigmoid(for_c * row.before[i], kept(1));
    row.for_x[2 * n + i] = back_tanh(for_c * kept(0), kept(2));
    row.for_x[3 * n + i] = back_sigmoid(for_h * kept(4), kept(3));
    row.for_c[i] = for_c * kept(1);
  }
}

void gru_gradient(const GateGradient<double>& row) {
  const std::int64_t n = row.hidden;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto kept = [&](std::int64_t number) { return row.kept[number * n + i]; };
    const double for_h = row.for_h[i];
    const double for_candidate = back_tanh(for_h * (1.0 - kept(1)), kept(2));
    row.for_x[i] = row.for_hidden[i] = back_sigmoid(for_candidate * kept(3), kept(0));
    row.for_x[n + i] = row.for_hidden[n + i] =
        back_sigmoid(for_h * (row.before[i] - kept(2)), kept(1));
    row.for_x[2 * n + i] = for_candidate;
    row.for_hidden[2 * n + i] = for_candidate * kept(0);
    row.for_h[i] = for_h * kept(1);
  }
}

void rnn_tanh_gradient(const GateGradient<double>& row) {
  for (std::int64_t i = 0; i < row.hidden; ++i) row.for_x[i] = back_tanh(row.for_h[i], row.h[i]);
}

void rnn_relu_gradient(const GateGradient<double>& row) {
  for (std::int64_t i = 0; i < row.hidden; ++i) row.for_x[i] = row.h[i] > 0.0 ? row.for_h[i] : 0.0;
}

}  // namespace quanta::cpu
