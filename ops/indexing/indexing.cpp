#include "quanta/ops/indexing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/nonzero.h"
#include "quanta/ops/cuda/pick.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/scatter.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing/cuda_kernels.h"
#include "quanta/ops/indexing/index.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

// The operations with one index or mask; index and index_put_ are in index.cpp, those that scatter
// in scatter.cpp.

namespace quanta {
namespace indexing {
namespace {

void check_positions(std::string_view op, const Tensor& index, std::int64_t low,
                     std::int64_t length) {
  const auto* at = static_cast<const std::int64_t*>(index.data_ptr());
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    QUANTA_CHECK(at[i] >= low && at[i] < length, "{}: index: expected {}..{}, got {}", op, low,
                 length - 1, at[i]);
  }
}

// What the device has found, with the text of check_positions. Waits for the device.
void pick_checked(std::string_view op, const Tensor& x, const Tensor& out, const Dims& strides,
                  const cuda::PickedDim& picked) {
  if (cuda::pick(x, out, strides, {&picked, 1})) return;
  check_positions(op, detail::int64_indices(op, "index", picked.positions.cpu()), picked.low,
                  picked.length);
}

// Along one dimension, by an Int64 or Int32 index.
template <typename Derived>
struct AlongDim : Op<Derived> {
  static constexpr ArgumentCount kArguments{2};
  std::int64_t dim = 0;

  AlongDim() = default;
  explicit AlongDim(std::int64_t along) : dim(along) {}

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &Derived::dim>("dim")};
    return kTable;
  }
};

struct IndexSelect final : AlongDim<IndexSelect> {
  static constexpr std::string_view kName = "index_select";
  using AlongDim::AlongDim;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    detail::check_indices(kName, "index", in[1]);
    QUANTA_CHECK(in[1].dim() <= 1, "{}: index: expected at most 1 dimension, got {}", kName,
                 in[1].sizes());
    out.arrange(0, MemoryFormat::Contiguous);
    Dims sizes = x.sizes();
    if (x.dim() > 0) sizes[static_cast<std::size_t>(d)] = in[1].numel();
    // A 0-d tensor counts as one of size 1.
    if (x.dim() == 0 && in[1].dim() == 1) sizes = {in[1].numel()};
    out.add_like(x, sizes);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor positions = detail::int64_indices(kName, "index", in[1]);
    const auto axis = static_cast<std::size_t>(wrap_dim(dim, x.dim(), kName));
    const std::int64_t length = x.dim() == 0 ? 1 : x.sizes()[axis];
    check_positions(kName, positions, 0, length);
    std::int64_t inner = 1;
    for (std::size_t i = axis + 1; i < x.sizes().size(); ++i) inner *= x.sizes()[i];
    const std::size_t bytes = static_cast<std::size_t>(inner) * item_size(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.data_ptr());
    auto* to = static_cast<std::byte*>(out[0].data_ptr());
    const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
    const std::int64_t count = positions.numel();
    parallel_for(out[0].numel() / inner, std::max<std::int64_t>(1, cpu::kElementGrain / inner),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t piece = begin; piece < end; ++piece) {
                     const std::int64_t position = piece / count * length + at[piece % count];
                     std::memcpy(to + static_cast<std::size_t>(piece) * bytes,
                                 from + static_cast<std::size_t>(position) * bytes, bytes);
                   }
                 });
    return "copy";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor& index = in[1];
    const auto axis = static_cast<std::size_t>(wrap_dim(dim, x.dim(), kName));
    const std::int64_t each = index.dim() == 0 ? 0 : index.strides()[0];
    Dims positions = Dims::filled(out[0].sizes().size(), 0);
    if (!positions.empty()) positions[axis] = each;
    if (x.dim() == 0) {
      const Dims nothing = Dims::filled(positions.size(), 0);
      pick_checked(kName, x, out[0], nothing, {index, positions, 0, 1, 0});
      return "pick_items";
    }
    Dims strides = x.strides();
    strides[axis] = 0;
    pick_checked(kName, x, out[0], strides,
                 {index, positions, 0, x.sizes()[axis], x.strides()[axis]});
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  OpWork work(const Arguments&, std::span<const Tensor> out) const override {
    return {.bytes = 2 * static_cast<std::int64_t>(out[0].nbytes())};
  }

  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const Tensor positions = detail::int64_indices(kName, "index", context.input(1));
    return {detail::add_slices(context.grad(), positions, sizes, wrap_dim(dim, rank, kName)),
            Tensor()};
  }
};

struct Gather final : AlongDim<Gather> {
  static constexpr std::string_view kName = "gather";
  using AlongDim::AlongDim;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& index = in[1];
    detail::check_uniform(kName, "x", x);
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    detail::check_indices(kName, "index", index);
    QUANTA_CHECK(index.dim() == x.dim(), "{}: index: expected {} dimensions as x has, got {}",
                 kName, x.dim(), index.sizes());
    for (std::int64_t i = 0; i < x.dim() && index.numel() > 0; ++i) {
      QUANTA_CHECK(i == d || index.size(i) <= x.size(i),
                   "{}: index: expected sizes up to {} but along dim {}, got {}", kName, x.sizes(),
                   d, index.sizes());
    }
    out.add_like(x, index.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor positions = detail::int64_indices(kName, "index", in[1]);
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    Dims strides = x.strides();
    std::int64_t step = 0;
    if (x.dim() > 0) {
      step = x.strides()[static_cast<std::size_t>(d)];
      strides[static_cast<std::size_t>(d)] = 0;
    }
    check_positions(kName, positions, 0, x.dim() == 0 ? 1 : x.size(d));
    const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
    const cpu::StridedLoop<3> loop(out[0].sizes(),
                                   {&out[0].strides(), &positions.strides(), &strides});
    const auto& inner = loop.inner_strides();
    detail::visit_bits(x.dtype(), [&](auto bits) {
      using T = decltype(bits);
      auto* to = static_cast<T*>(out[0].data_ptr());
      const auto* from = static_cast<const T*>(x.data_ptr());
      loop.run([&](const std::array<std::int64_t, 3>& offsets, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          to[offsets[0] + i * inner[0]] =
              from[offsets[2] + i * inner[2] + at[offsets[1] + i * inner[1]] * step];
        }
      });
    });
    return "copy";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    Dims strides = x.strides();
    std::int64_t step = 0;
    std::int64_t length = 1;
    if (x.dim() > 0) {
      const auto axis = static_cast<std::size_t>(wrap_dim(dim, x.dim(), kName));
      step = strides[axis];
      length = x.sizes()[axis];
      strides[axis] = 0;
    }
    pick_checked(kName, x, out[0], strides, {in[1], in[1].strides(), 0, length, step});
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const Tensor index = detail::int64_indices(kName, "index", context.input(1));
    const Tensor positions = detail::positions_along(index, wrap_dim(dim, rank, kName), sizes);
    return {detail::scatter_add(context.grad(), positions, sizes), Tensor()};
  }
};

struct Take final : Op<Take> {
  static constexpr std::string_view kName = "take";
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    detail::check_uniform(kName, "x", in[0]);
    detail::check_indices(kName, "index", in[1]);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add_like(in[0], in[1].sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor positions = detail::int64_indices(kName, "index", in[1]);
    const std::int64_t length = x.numel();
    check_positions(kName, positions, -length, length);
    const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
    detail::visit_bits(x.dtype(), [&](auto bits) {
      using T = decltype(bits);
      const auto* from = static_cast<const T*>(x.data_ptr());
      auto* to = static_cast<T*>(out[0].data_ptr());
      cpu::parallel_elements(out[0].numel(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = from[at[i] < 0 ? at[i] + length : at[i]];
      });
    });
    return "copy";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t length = in[0].numel();
    pick_checked(kName, in[0], out[0], Dims::filled(in[1].sizes().size(), 0),
                 {in[1], in[1].strides(), -length, length, 1});
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const Tensor index = detail::int64_indices(kName, "index", context.input(1));
    return {detail::scatter_add(context.grad(), detail::wrapped_positions(index, product(sizes)),
                                sizes),
            Tensor()};
  }
};

// The value as an element of x, on the host.
Tensor one_element(const Tensor& x, double value) {
  const Tensor one = detail::empty_with_parameters_of(x, {}, MemoryFormat::Contiguous);
  one.fill_(value);
  return one;
}

// `mask` may broadcast.
void fill_masked(const Tensor& x, const Tensor& mask, double value) {
  const Tensor one = one_element(x, value);
  const Dims mask_strides = cpu::broadcast_strides(mask, x.sizes());
  const cpu::StridedLoop<2> loop(x.sizes(), {&x.strides(), &mask_strides});
  const auto [x_step, mask_step] = loop.inner_strides();
  detail::visit_bits(x.dtype(), [&, x_step = x_step, mask_step = mask_step](auto bits) {
    using T = decltype(bits);
    const T item = *static_cast<const T*>(one.data_ptr());
    auto* to = static_cast<T*>(x.data_ptr());
    const auto* fill = static_cast<const bool*>(mask.data_ptr());
    loop.run([&](const std::array<std::int64_t, 2>& at, std::int64_t count) {
      T* row = to + at[0];
      const bool* row_mask = fill + at[1];
      if (x_step == 1 && mask_step == 1) {
        for (std::int64_t i = 0; i < count; ++i) {
          row[i] = detail::select_bits(row_mask[i], item, row[i]);
        }
        return;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        row[i * x_step] = detail::select_bits(row_mask[i * mask_step], item, row[i * x_step]);
      }
    });
  });
}

// to = mask ? value : x on a CUDA device, broadcast to the result.
std::string_view fill_masked_on_device(const Tensor& x, const Tensor& mask, double value,
                                       const Tensor& to) {
  const Tensor one = one_element(to, value);
  cuda::FillMaskedParams params;
  params.rank = static_cast<int>(to.dim());
  params.count = to.numel();
  std::copy(to.sizes().begin(), to.sizes().end(), params.sizes);
  const Dims mask_strides = cpu::broadcast_strides(mask, to.sizes());
  const Dims x_strides = cpu::broadcast_strides(x, to.sizes());
  std::copy(to.strides().begin(), to.strides().end(), params.strides[0]);
  std::copy(mask_strides.begin(), mask_strides.end(), params.strides[1]);
  std::copy(x_strides.begin(), x_strides.end(), params.strides[2]);
  params.to = to.device_ptr();
  params.mask = reinterpret_cast<const bool*>(mask.device_ptr());
  params.x = x.device_ptr();
  params.item_bytes = static_cast<int>(item_size(to.dtype()));
  std::memcpy(&params.item, one.data_ptr(), item_size(to.dtype()));
  cuda::fill_masked_items(to.device(), params);
  return "fill_masked_items";
}

void check_mask(std::string_view op, const Tensor& x, const Tensor& mask) {
  detail::check_uniform(op, "x", x);
  detail::check_defined(op, "mask", mask);
  QUANTA_CHECK(mask.dtype() == DType::Bool, "{}: mask: expected Bool, got {}", op, mask.dtype());
}

// The tensor and the mask.
struct MaskedFillInPlace final : Op<MaskedFillInPlace> {
  static constexpr std::string_view kName = "masked_fill_";
  static constexpr ArgumentCount kArguments{2};
  double value = 0.0;

  MaskedFillInPlace() = default;
  explicit MaskedFillInPlace(double number) : value(number) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_mask(kName, x, in[1]);
    QUANTA_CHECK(detail::broadcasts_to(in[1].sizes(), x.sizes()),
                 "{}: mask: expected sizes that broadcast to {}, got {}", kName, x.sizes(),
                 in[1].sizes());
    detail::check_writable(kName, "x", x);
    out.add_in_place(x);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& mask = in[1];
    fill_masked(out[0], detail::memory_meets(out[0], mask) ? mask.clone() : mask, value);
    return "select";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor mask = detail::memory_meets(out[0], in[1]) ? in[1].clone() : in[1];
    return fill_masked_on_device(out[0], mask, value, out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<MaskedFillInPlace, &MaskedFillInPlace::value>("value")};
    return kTable;
  }
};

struct MaskedFill final : Op<MaskedFill> {
  static constexpr std::string_view kName = "masked_fill";
  static constexpr ArgumentCount kArguments{2};
  double value = 0.0;

  MaskedFill() = default;
  explicit MaskedFill(double number) : value(number) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_mask(kName, x, in[1]);
    // As in torch the copy has the broadcast sizes, so that the mask may be the larger one.
    const Dims sizes = broadcast_sizes(x.sizes(), in[1].sizes(), kName);
    if (sizes == x.sizes()) {
      out.add_like(x, sizes,
                   x.is_dense() ? x.strides() : contiguous_strides(sizes, x.suggested_format()));
    } else {
      out.add_like(x, sizes);
    }
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    out[0].copy_(in[0].detach().expand(out[0].sizes()));  // copy_ broadcasts no codes
    fill_masked(out[0], in[1], value);
    return "select";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return fill_masked_on_device(in[0], in[1], value, out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {autograd::sum_to_size(masked_fill(context.grad(), context.input(1), 0.0),
                                  context.input_sizes(0)),
            Tensor()};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<MaskedFill, &MaskedFill::value>("value")};
    return kTable;
  }
};

struct Nonzero final : Op<Nonzero> {
  static constexpr std::string_view kName = "nonzero";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_defined(kName, "x", x);
    QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor (dequantize first), got {}",
                     kName, x.dtype());
    out.reads_values(kName, x);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add({count_nonzero(x.contiguous()), x.dim()}, DType::Int64);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    auto* to = static_cast<std::int64_t*>(out[0].data_ptr());
    visit_nonzero(x, [&](std::int64_t rest) {
      for (std::int64_t d = x.dim() - 1; d >= 0; --d) {
        const std::int64_t size = x.sizes()[static_cast<std::size_t>(d)];
        to[d] = rest % size;
        rest /= size;
      }
      to += x.dim();
    });
    return "scan";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    found_on_device(in[0]).write_places(in[0].sizes(),
                                        reinterpret_cast<std::int64_t*>(out[0].device_ptr()));
    return "place_nonzero";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrderedPlain; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }

 private:
  // On a device that waits: how many there are decides about the sizes of the result.
  static std::int64_t count_nonzero(const Tensor& x) {
    detail::check_ordered(kName, x.dtype());
    if (x.numel() == 0) return 0;
    if (x.device().is_cuda()) return found_on_device(x).total();
    std::int64_t count = 0;
    visit_nonzero(x, [&](std::int64_t) { ++count; });
    return count;
  }
  static cuda::Nonzero found_on_device(const Tensor& x) {
    return {x.device(), x.dtype(), x.device_ptr(), x.numel()};
  }

  // visitor(i) for each element i of x, contiguous, that is not 0.
  template <typename Visitor>
  static void visit_nonzero(const Tensor& x, Visitor&& visitor) {
    detail::visit_ordered(kName, x.dtype(), [&](auto element) {
      using T = decltype(element);
      const auto* from = static_cast<const T*>(x.data_ptr());
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        if (from[i] != T{}) visitor(i);
      }
    });
  }
};

}  // namespace
}  // namespace indexing

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  return run(indexing::IndexSelect{dim}, x, index);
}
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  return run(indexing::Gather{dim}, x, index);
}
Tensor take(const Tensor& x, const Tensor& index) { return run(indexing::Take{}, x, index); }
const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, double value) {
  run(indexing::MaskedFillInPlace{value}, x, mask);
  return x;
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  return run(indexing::MaskedFill{value}, x, mask);
}
Tensor nonzero(const Tensor& x) { return run(indexing::Nonzero{}, x); }

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/indexing.h";

Tensor sample_index(const Dims& sizes) {
  return Tensor::from_int64(std::array<std::int64_t, 6>{1, 0, 1, 1, 0, 0}).view(sizes);
}
Tensor sample_mask() { return sample_index({2, 3}).to(DType::Bool); }

template <typename Kind, std::size_t rank>
void add_row(Catalogue& catalogue) {
  catalogue.add(
      {.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes}, [](DType dtype) {
        return sample_call(
            Kind{}, {sample_tensor({2, 3}, dtype), sample_index(rank == 1 ? Dims{6} : Dims{2, 3})});
      });
}

template <typename Kind>
void add_masked(Catalogue& catalogue) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(Kind{1.0}, {sample_tensor({2, 3}, dtype), sample_mask()});
                });
}

}  // namespace

void detail::add_indexing(Catalogue& catalogue) {
  add_row<indexing::IndexSelect, 1>(catalogue);
  add_row<indexing::Gather, 2>(catalogue);
  add_row<indexing::Take, 2>(catalogue);
  add_masked<indexing::MaskedFill>(catalogue);
  add_masked<indexing::MaskedFillInPlace>(catalogue);
  catalogue.add(
      {.name = indexing::Nonzero::kName, .header = kHeader, .dtypes = dtypes::kOrderedPlain},
      [](DType dtype) {
        return sample_call(indexing::Nonzero{}, {sample_tensor({2, 3}, dtype)});
      });
  indexing::add_index(catalogue);
  indexing::add_scatter(catalogue);
}

}  // namespace quanta
