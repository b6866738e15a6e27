#include "quanta/ops/sqnr.h"

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta {

void SqnrSum::add(const Tensor& reference, const Tensor& value) {
  QUANTA_CHECK(reference.defined(), "sqnr: reference: expected a tensor, got an undefined one");
  QUANTA_CHECK(value.defined(), "sqnr: value: expected a tensor, got an undefined one");
  QUANTA_CHECK(value.sizes() == reference.sizes(),
               "sqnr: value: expected the reference's sizes {}, got {}",
               to_string(reference.sizes()), to_string(value.sizes()));
  const std::vector<float> want = reference.to_float_vector();
  const std::vector<float> got = value.to_float_vector();
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double signal = want[i];
    signal_ += signal * signal;
    if (want[i] == got[i]) continue;  // equal infinities are no noise
    const double noise = signal - static_cast<double>(got[i]);
    noise_ += noise * noise;
  }
}

double SqnrSum::decibels() const {
  if (noise_ == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal_ / noise_);
}

double sqnr(const Tensor& reference, const Tensor& value) {
  SqnrSum sum;
  sum.add(reference, value);
  return sum.decibels();
}

}  // namespace quanta
