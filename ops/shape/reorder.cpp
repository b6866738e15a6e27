#include "quanta/ops/shape/reorder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/gather.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shape/cuda_reorder.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace shapes {
namespace {

enum class Half : bool { Upper, Lower };

template <Half half>
struct Triangle final : Op<Triangle<half>> {
  static constexpr std::string_view kName = half == Half::Upper ? "triu" : "tril";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t diagonal = 0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kName, x.sizes());
    out.arrange(0, MemoryFormat::Contiguous);
    out.add_like(x, x.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t rows = x.size(-2);
    const std::int64_t columns = x.size(-1);
    // Beyond the matrix it makes no difference, and the sums below cannot overflow.
    const std::int64_t offset = std::clamp(diagonal, -rows, columns);
    out[0].fill_(0.0);
    const std::size_t bytes = item_size(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.data_ptr());
    auto* to = static_cast<std::byte*>(out[0].data_ptr());
    const std::int64_t grain = std::max<std::int64_t>(1, cpu::kElementGrain / columns);
    parallel_for(x.numel() / columns, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t row = line % rows;
        const std::int64_t edge = half == Half::Upper ? row + offset : row + offset + 1;
        const std::int64_t middle = std::clamp<std::int64_t>(edge, 0, columns);
        const std::int64_t first = half == Half::Upper ? middle : 0;
        const std::int64_t count = half == Half::Upper ? columns - middle : middle;
        const std::size_t at = static_cast<std::size_t>(line * columns + first) * bytes;
        std::memcpy(to + at, from + at, static_cast<std::size_t>(count) * bytes);
      }
    });
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t rows = x.size(-2);
    const std::int64_t columns = x.size(-1);
    cuda::keep_triangle(x.device(), {.count = x.numel(),
                                     .rows = rows,
                                     .columns = columns,
                                     .diagonal = std::clamp(diagonal, -rows, columns),
                                     .upper = half == Half::Upper,
                                     .item_bytes = static_cast<int>(item_size(x.dtype())),
                                     .zero = cuda::bits_of(x, 0.0),
                                     .x = x.device_ptr(),
                                     .y = out[0].device_ptr()});
    return "keep_triangle";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {run(*this, context.grad())};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Triangle, &Triangle::diagonal>("diagonal")};
    return kTable;
  }
};

struct ReverseSequence final : Op<ReverseSequence> {
  static constexpr std::string_view kName = "reverse_sequence";
  static constexpr ArgumentCount kArguments{2};
  std::int64_t time_dim = 0;
  std::int64_t batch_dim = 1;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kName, x.sizes());
    const std::int64_t time = wrap_dim(time_dim, x.dim(), kName, "time_dim");
    const std::int64_t batch = wrap_dim(batch_dim, x.dim(), kName, "batch_dim");
    QUANTA_CHECK(time != batch, "{}: time_dim: expected another than batch_dim {}, got {}", kName,
                 batch_dim, time_dim);
    detail::check_indices(kName, "lengths", in[1]);
    QUANTA_CHECK(in[1].sizes() == Dims{x.size(batch)}, "{}: lengths: expected [{}], got {}", kName,
                 x.size(batch), in[1].sizes());
    out.add_like(x, x.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor x = in[0].detach();
    const std::int64_t time = wrap_dim(time_dim, x.dim(), kName, "time_dim");
    const std::int64_t batch = wrap_dim(batch_dim, x.dim(), kName, "batch_dim");
    const std::vector<std::int64_t> lengths = in[1].to_int64_vector();
    check_lengths(lengths, x.size(time));
    // One batch after the other; within it the dimension of time comes first.
    const std::int64_t time_within = time < batch ? time : time - 1;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const auto number = static_cast<std::int64_t>(b);
      const Tensor from = x.select(batch, number).transpose(0, time_within);
      const Tensor to = out[0].select(batch, number).transpose(0, time_within);
      const std::int64_t length = lengths[b];
      for (std::int64_t t = 0; t < length; ++t)
        to.select(0, length - 1 - t).copy_(from.select(0, t));
      to.slice(0, length, to.size(0)).copy_(from.slice(0, length, from.size(0)));
    }
    return "copy";
  }

  // The host looks at the lengths, so that it waits for the device.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t time = wrap_dim(time_dim, x.dim(), kName, "time_dim");
    check_lengths(in[1].to_int64_vector(), x.size(time));
    const Tensor lengths = in[1].to(DType::Int64).contiguous();
    cuda::ReverseParams params;
    params.count = x.numel();
    params.rank = static_cast<int>(x.dim());
    params.time = static_cast<int>(time);
    params.batch = static_cast<int>(wrap_dim(batch_dim, x.dim(), kName, "batch_dim"));
    std::copy(x.sizes().begin(), x.sizes().end(), params.sizes);
    std::copy(x.strides().begin(), x.strides().end(), params.strides);
    params.lengths = reinterpret_cast<const std::int64_t*>(lengths.device_ptr());
    params.item_bytes = static_cast<int>(item_size(x.dtype()));
    params.x = x.device_ptr();
    params.y = out[0].device_ptr();
    cuda::reverse_sequences(x.device(), params);
    return "reverse_sequences";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {run(*this, context.grad(), context.input(1)), Tensor()};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ReverseSequence, &ReverseSequence::time_dim>("time_dim"),
        attribute<ReverseSequence, &ReverseSequence::batch_dim>("batch_dim")};
    return kTable;
  }

 private:
  static void check_lengths(const std::vector<std::int64_t>& lengths, std::int64_t size) {
    for (const std::int64_t length : lengths) {
      QUANTA_CHECK(length >= 0 && length <= size, "{}: lengths: expected 0..{}, got {}", kName,
                   size, length);
    }
  }
};

constexpr std::string_view kHeader = "quanta/ops/shape.h";

template <Half half>
void add_triangle(Catalogue& catalogue) {
  catalogue.add({.name = Triangle<half>::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(Triangle<half>{}, {sample_tensor({2, 3, 4}, dtype)});
                });
}

template <Half half>
Tensor triangle(const Tensor& x, std::int64_t diagonal) {
  Triangle<half> operation;
  operation.diagonal = diagonal;
  return run(operation, x);
}

}  // namespace

void add_reorder(Catalogue& catalogue) {
  add_triangle<Half::Upper>(catalogue);
  add_triangle<Half::Lower>(catalogue);
  catalogue.add({.name = ReverseSequence::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(ReverseSequence{},
                                     {sample_tensor({4, 2, 3}, dtype),
                                      Tensor::from_int64(std::array<std::int64_t, 2>{3, 2})});
                });
}

}  // namespace shapes

Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return shapes::triangle<shapes::Half::Upper>(x, diagonal);
}
Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return shapes::triangle<shapes::Half::Lower>(x, diagonal);
}
Tensor reverse_sequence(const Tensor& x, const Tensor& lengths, std::int64_t time_dim,
                        std::int64_t batch_dim) {
  shapes::ReverseSequence operation;
  operation.time_dim = time_dim;
  operation.batch_dim = batch_dim;
  return run(operation, x, lengths);
}

}  // namespace quanta
