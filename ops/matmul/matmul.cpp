#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/linear/gradient.h"
#include "quanta/ops/matmul/cpu_matmul.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// The sizes without the last two.
Dims batch_of(const Tensor& x) {
  Dims batch = x.sizes();
  batch.resize(batch.size() - 2);
  return batch;
}

// Leading dimensions of size 1 up to `rank`.
Tensor with_rank(Tensor x, std::int64_t rank) {
  while (x.dim() < rank) x = x.unsqueeze(0);
  return x;
}

// For proofs of gradients: out = lhs x rhs in Float64, batch dimensions broadcast.
void double_matmul(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  const auto expanded = [&](const Tensor& x) {
    Dims sizes = batch_of(out);
    sizes.push_back(x.size(-2));
    sizes.push_back(x.size(-1));
    return x.expand(sizes).contiguous();
  };
  const Tensor left = expanded(lhs);
  const Tensor right = expanded(rhs);
  const std::int64_t rows = left.size(-2);
  const std::int64_t inner = left.size(-1);
  const std::int64_t columns = right.size(-1);
  double* results = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t column = i % columns;
    const std::int64_t row = i / columns;  // of all batches
    const double* a = left.data<double>() + row * inner;
    const double* b = right.data<double>() + row / rows * inner * columns + column;
    double sum = 0.0;
    for (std::int64_t k = 0; k < inner; ++k) sum += a[k] * b[k * columns];
    results[i] = sum;
  }
}

// All three of one rank.
void matmul_to(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  if (out.dtype() == DType::Float64) {
    double_matmul(lhs, rhs, out);
  } else {
    cpu::matmul(lhs, rhs, out);
  }
}

Tensor multiply(std::string_view op, const Tensor& lhs, const Tensor& rhs) {
  QUANTA_CHECK(lhs.dim() >= 1, "{}: lhs: expected at least 1 dimension, got 0", op);
  QUANTA_CHECK(rhs.dim() >= 1, "{}: rhs: expected at least 1 dimension, got 0", op);
  // A vector on the left is a row, one on the right a column; that dimension goes away again.
  const Tensor left = lhs.dim() == 1 ? lhs.unsqueeze(0) : lhs;
  const Tensor right = rhs.dim() == 1 ? rhs.unsqueeze(1) : rhs;
  QUANTA_CHECK(left.size(-1) == right.size(-2),
               "{}: rhs: expected {} rows for lhs of sizes {}, got sizes {}", op, left.size(-1),
               lhs.sizes(), rhs.sizes());
  Dims sizes = broadcast_sizes(batch_of(left), batch_of(right), op);
  sizes.push_back(left.size(-2));
  sizes.push_back(right.size(-1));
  const auto rank = static_cast<std::int64_t>(sizes.size());

  Tensor out = Tensor::empty(sizes, lhs.dtype());
  if (left.size(-1) == 0) {
    out.fill_(0.0);
  } else if (out.numel() > 0) {
    const Tensor a = with_rank(left, rank);
    const Tensor b = with_rank(right, rank);
    matmul_to(a, b, out);
    if (replay::is_recording()) {
      replay::record(
          {.op = op,
           .inputs = {a, b},
           .outputs = {out},
           .run =
               [](const replay::Frame& frame) { matmul_to(frame.in(0), frame.in(1), frame.out()); },
           .identity = "matmul"});
    }
  }
  if (rhs.dim() == 1) out = out.squeeze(-1);
  if (lhs.dim() == 1) out = out.squeeze(rhs.dim() == 1 ? -1 : -2);
  return out;
}

// Of inner length K, which is lhs's last size.
OpWork product_work(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  return {.multiply_adds = out.numel() * lhs.size(-1),
          .bytes = static_cast<std::int64_t>(lhs.nbytes() + rhs.nbytes() + out.nbytes())};
}

void check_batches(std::string_view op, const Tensor& lhs, const Tensor& rhs) {
  QUANTA_CHECK(lhs.defined() && lhs.dim() == 3, "{}: lhs: expected [B, M, K], got {}", op,
               lhs.defined() ? to_string(lhs.sizes()) : "an undefined tensor");
  QUANTA_CHECK(rhs.defined() && rhs.dim() == 3 && rhs.size(0) == lhs.size(0),
               "{}: rhs: expected [{}, K, N] for lhs of sizes {}, got {}", op, lhs.size(0),
               lhs.sizes(), rhs.defined() ? to_string(rhs.sizes()) : "an undefined tensor");
}

}  // namespace

Tensor matmul(const Tensor& lhs, const Tensor& rhs) {
  OpScope scope("matmul");
  for (const Tensor* x : {&lhs, &rhs}) {
    const std::string_view argument = x == &lhs ? "lhs" : "rhs";
    QUANTA_CHECK(x->defined(), "matmul: {}: expected a Float32 tensor, got an undefined one",
                 argument);
    QUANTA_SUPPORTED(!x->is_quantized(),
                     "matmul: {}: expected Float32, got a quantized tensor ({}), and the result's "
                     "scale is not known here: use nn::FloatFunctional, or dequantize first",
                     argument, x->dtype());
    QUANTA_SUPPORTED(x->dtype() == DType::Float32 || x->dtype() == DType::Float64,
                     "matmul: {}: expected Float32 (or Float64) on the CPU, got {}", argument,
                     x->dtype());
  }
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "matmul: rhs: expected {} as lhs has, got {}",
               lhs.dtype(), rhs.dtype());
  if (autograd::needs_grad(lhs, rhs)) {
    return gradients::record_matmul(multiply("matmul", lhs.detach(), rhs.detach()), lhs, rhs);
  }
  scope.kernel("onednn");
  Tensor out = multiply("matmul", lhs, rhs);
  scope.work([&] { return product_work(lhs, rhs, out); });
  return out;
}

Tensor bmm(const Tensor& lhs, const Tensor& rhs) {
  check_batches("bmm", lhs, rhs);
  return matmul(lhs, rhs);
}

namespace quantized {

QTensor matmul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  constexpr std::string_view kOp = "quantized::matmul";
  OpScope scope(kOp);
  cpu::check_per_tensor(kOp, "lhs", lhs);
  cpu::check_per_tensor(kOp, "rhs", rhs);
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", kOp,
               lhs.dtype(), rhs.dtype());
  QUANTA_SUPPORTED(lhs.dtype() != DType::QInt32,
                   "{}: lhs: expected QUInt8 or QInt8 on the CPU, got QInt32", kOp);
  check_quantizer(kOp, Quantizer::per_tensor(scale, zero_point), lhs.dtype(), {});
  scope.kernel("dequantize, onednn, quantize");
  return quantize_per_tensor(multiply(kOp, dequantize(lhs), dequantize(rhs)), scale, zero_point,
                             lhs.dtype());
}

QTensor bmm(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  check_batches("quantized::bmm", lhs, rhs);
  return matmul(lhs, rhs, scale, zero_point);
}

}  // namespace quantized
}  // namespace quanta
