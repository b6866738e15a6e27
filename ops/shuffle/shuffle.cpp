#include "quanta/ops/shuffle.h"

#include <array>
#include <string_view>
#include <utility>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

// All three split dimensions of input and output into factors, which a view can always do, and
// copy from one view to the other.

void check_input(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(!is_sub_byte(x.dtype()), "{}: x: expected a whole-byte dtype, got {}", op,
                   x.dtype());
  QUANTA_SUPPORTED(!x.is_quantized() || !is_per_channel(x.impl()->quantizer.scheme),
                   "{}: x: expected a tensor quantized per tensor, got {}", op,
                   x.impl()->quantizer.scheme);
  QUANTA_CHECK(x.dim() >= 3 && x.dim() <= 7, "{}: x: expected 3 to 7 dimensions, got {}", op,
               x.sizes());
}

void check_factor(std::string_view op, std::string_view argument, std::int64_t factor) {
  constexpr std::int64_t kLimit = 65535;  // its square times the channels fits
  QUANTA_CHECK(factor >= 1 && factor <= kLimit, "{}: {}: expected 1..{}, got {}", op, argument,
               kLimit, factor);
}

MemoryFormat format_of(const Tensor& x) {
  return x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

// The dimensions before the last three.
Dims leading(const Tensor& x) {
  Dims sizes = x.sizes();
  sizes.resize(sizes.size() - 3);
  return sizes;
}

Dims joined(Dims head, const Dims& tail) {
  for (const std::int64_t size : tail) head.push_back(size);
  return head;
}

// 0, 1, ... for the leading dimensions, then these positions among the rest.
Dims order_after(std::size_t head, const Dims& tail) {
  Dims order;
  for (std::size_t d = 0; d < head; ++d) order.push_back(static_cast<std::int64_t>(d));
  for (const std::int64_t d : tail) order.push_back(static_cast<std::int64_t>(head) + d);
  return order;
}

struct ChannelShuffle final : Op<ChannelShuffle> {
  static constexpr std::string_view kName = "channel_shuffle";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::int64_t groups = 1;

  ChannelShuffle() = default;
  explicit ChannelShuffle(std::int64_t count) : groups(count) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_input(kName, x);
    check_factor(kName, "groups", groups);
    QUANTA_CHECK(x.sizes()[1] % groups == 0,
                 "{}: groups: expected a divisor of the {} channels, got {}", kName, x.sizes()[1],
                 groups);
    out.add_like(x, x.sizes(), format_of(x));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    Dims split = x.sizes();
    split[1] = groups;
    split.insert(2, x.sizes()[1] / groups);
    Dims shuffled = split;
    std::swap(shuffled[1], shuffled[2]);
    out[0].view(shuffled).copy_(x.detach().view(split).transpose(1, 2));
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const std::int64_t channels = context.grad().size(1);
    return {channel_shuffle(context.grad(), channels == 0 ? 1 : channels / groups)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ChannelShuffle, &ChannelShuffle::groups>("groups")};
    return kTable;
  }
};

struct PixelShuffle final : Op<PixelShuffle> {
  static constexpr std::string_view kName = "pixel_shuffle";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::int64_t upscale_factor = 1;

  PixelShuffle() = default;
  explicit PixelShuffle(std::int64_t factor) : upscale_factor(factor) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_input(kName, x);
    check_factor(kName, "upscale_factor", upscale_factor);
    const std::int64_t r = upscale_factor;
    QUANTA_CHECK(x.size(-3) % (r * r) == 0,
                 "{}: x: expected a multiple of upscale_factor^2 = {} channels, got {}", kName,
                 r * r, x.size(-3));
    out.add_like(x, joined(leading(x), {x.size(-3) / (r * r), x.size(-2) * r, x.size(-1) * r}),
                 format_of(x));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t r = upscale_factor;
    const std::int64_t channels = x.size(-3) / (r * r);
    const Dims head = leading(x);
    const Tensor source = x.detach()
                              .view(joined(head, {channels, r, r, x.size(-2), x.size(-1)}))
                              .permute(order_after(head.size(), {0, 3, 1, 4, 2}));
    out[0].view(joined(head, {channels, x.size(-2), r, x.size(-1), r})).copy_(source);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {pixel_unshuffle(context.grad(), upscale_factor)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<PixelShuffle, &PixelShuffle::upscale_factor>("upscale_factor")};
    return kTable;
  }
};

struct PixelUnshuffle final : Op<PixelUnshuffle> {
  static constexpr std::string_view kName = "pixel_unshuffle";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::int64_t downscale_factor = 1;

  PixelUnshuffle() = default;
  explicit PixelUnshuffle(std::int64_t factor) : downscale_factor(factor) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_input(kName, x);
    check_factor(kName, "downscale_factor", downscale_factor);
    const std::int64_t r = downscale_factor;
    QUANTA_CHECK(x.size(-2) % r == 0 && x.size(-1) % r == 0,
                 "{}: x: expected height and width divisible by {}, got {}", kName, r, x.sizes());
    out.add_like(x, joined(leading(x), {x.size(-3) * r * r, x.size(-2) / r, x.size(-1) / r}),
                 format_of(x));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t r = downscale_factor;
    const std::int64_t channels = x.size(-3);
    const std::int64_t height = x.size(-2) / r;
    const std::int64_t width = x.size(-1) / r;
    const Dims head = leading(x);
    const Tensor source = x.detach()
                              .view(joined(head, {channels, height, r, width, r}))
                              .permute(order_after(head.size(), {0, 2, 4, 1, 3}));
    out[0].view(joined(head, {channels, r, r, height, width})).copy_(source);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {pixel_shuffle(context.grad(), downscale_factor)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<PixelUnshuffle, &PixelUnshuffle::downscale_factor>("downscale_factor")};
    return kTable;
  }
};

constexpr std::string_view kHeader = "quanta/ops/shuffle.h";

template <typename Kind>
void add_row(Catalogue& catalogue) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(Kind{2}, {sample_tensor({2, 4, 4, 6}, dtype)});
                });
}

}  // namespace

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  return run(ChannelShuffle{groups}, x);
}
Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
  return run(PixelShuffle{upscale_factor}, x);
}
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
  return run(PixelUnshuffle{downscale_factor}, x);
}

void detail::add_shuffle(Catalogue& catalogue) {
  add_row<ChannelShuffle>(catalogue);
  add_row<PixelShuffle>(catalogue);
  add_row<PixelUnshuffle>(catalogue);
}

}  // namespace quanta
