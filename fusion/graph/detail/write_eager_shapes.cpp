// Tensors that are joined, padded, turned around, picked from and resized.

#include <algorithm>
#include <limits>

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

std::int64_t from_front(std::int64_t d, std::int64_t rank) { return d < 0 ? d + rank : d; }

template <bool kRelu>
bool cat(EagerCall& call) {
  Names parts;
  std::int64_t rank = 0;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    // torch takes empty tensors of one dimension among others.
    const Dims sizes = call.sizes(i);
    if (sizes == Dims{0}) continue;
    rank = static_cast<std::int64_t>(sizes.size());
    parts.push_back(call.input(i));
  }
  if (parts.empty()) return call.refuse("nothing is joined");
  const OnnxAttributes attributes{{"axis", from_front(call.setting("dim", std::int64_t{0}), rank)}};
  if (kRelu) {
    call.emit("Relu", {call.part("Concat", std::move(parts), attributes)});
  } else {
    call.emit("Concat", std::move(parts), attributes);
  }
  return true;
}

bool stack(EagerCall& call) {
  const std::int64_t axis = from_front(call.setting("dim", std::int64_t{0}), call.rank(0) + 1);
  Names parts;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (call.opset() >= 13) {
      parts.push_back(call.part("Unsqueeze", {call.input(i), call.integers("axes", {axis})}));
    } else {
      parts.push_back(call.part("Unsqueeze", {call.input(i)}, {{"axes", Numbers{axis}}}));
    }
  }
  call.emit("Concat", std::move(parts), {{"axis", axis}});
  return true;
}

bool pad(EagerCall& call) {
  // From the last dimension on: before, behind.
  const Numbers own = call.setting("pad", Dims{}).to_vector().empty()
                          ? call.setting("pad", Numbers{})
                          : call.setting("pad", Dims{}).to_vector();
  const auto rank = static_cast<std::size_t>(call.rank(0));
  Numbers pads(2 * rank, 0);
  for (std::size_t i = 0; i < own.size() / 2; ++i) {
    pads[rank - 1 - i] = own[2 * i];
    pads[2 * rank - 1 - i] = own[2 * i + 1];
  }
  const std::string mode = call.setting("mode", std::string("constant"));
  const std::string known = mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode;
  Names inputs{call.input(0), call.integers("pads", pads)};
  if (mode == "constant") inputs.push_back(call.scalar("value", call.setting("value", 0.0)));
  call.need(known == "wrap" ? 19 : 11, "Pad");
  call.emit("Pad", std::move(inputs), {{"mode", known}});
  return true;
}

bool flip(EagerCall& call) {
  Numbers axes = call.setting("dims", Dims{}).to_vector();
  for (std::int64_t& axis : axes) axis = from_front(axis, call.rank(0));
  const std::size_t count = axes.size();
  call.need(10, "Slice");
  call.emit("Slice",
            {call.input(0), call.integers("starts", Numbers(count, -1)),
             call.integers("ends", Numbers(count, std::numeric_limits<std::int64_t>::min())),
             call.integers("axes", axes), call.integers("steps", Numbers(count, -1))});
  return true;
}

bool repeat(EagerCall& call) {
  const Numbers repeats = call.setting("repeats", Dims{}).to_vector();
  Numbers sizes = call.sizes(0).to_vector();
  std::string x = call.input(0);
  if (repeats.size() > sizes.size()) {
    if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) {
      return call.refuse("repeats of more dimensions than a batch has");
    }
    sizes.insert(sizes.begin(), repeats.size() - sizes.size(), 1);
    x = call.part("Reshape", {x, call.integers("sizes", sizes)});
  }
  call.emit("Tile", {x, call.integers("repeats", repeats)});
  return true;
}

template <bool kUpper>
bool triangle(EagerCall& call) {
  call.need(14, "Trilu");
  call.emit("Trilu",
            {call.input(0), call.weight("k", Tensor::scalar(static_cast<double>(call.setting(
                                                                "diagonal", std::int64_t{0})),
                                                            DType::Int64))},
            {{"upper", std::int64_t{kUpper}}});
  return true;
}

bool index_select(EagerCall& call) {
  call.emit("Gather", {call.input(0), call.input(1)},
            {{"axis", from_front(call.setting("dim", std::int64_t{0}), call.rank(0))}});
  return true;
}

bool gather(EagerCall& call) {
  call.need(11, "GatherElements");
  call.emit("GatherElements", {call.input(0), call.input(1)},
            {{"axis", from_front(call.setting("dim", std::int64_t{0}), call.rank(0))}});
  return true;
}

/// x[:, index]: one index of integers among dimensions that are taken whole.
bool index(EagerCall& call) {
  std::size_t given = 0;
  for (std::size_t i = 1; i < call.input_count(); ++i) {
    if (!call.has(i)) continue;
    if (given != 0) return call.refuse("ONNX has no index of several dimensions at once");
    given = i;
  }
  if (given == 0) return call.refuse("no index is given");
  if (call.type(given) == OnnxType::Bool)
    return call.refuse("the number of elements depends on values");
  call.emit("Gather", {call.input(0), call.input(given)},
            {{"axis", static_cast<std::int64_t>(given - 1)}});
  return true;
}

bool take(EagerCall& call) {
  const std::string all = call.part("Reshape", {call.input(0), call.integers("all", {-1})});
  call.emit("Gather", {all, call.input(1)}, {{"axis", std::int64_t{0}}});
  return true;
}

bool embedding(EagerCall& call) {
  call.emit("Gather", {call.input(0), call.input(1)}, {{"axis", std::int64_t{0}}});
  return true;
}

bool pixel_shuffle(EagerCall& call) {
  if (call.rank(0) != 4) return call.refuse("expected [N, C, H, W]");
  call.need(11, "DepthToSpace");
  call.emit("DepthToSpace", {call.input(0)},
            {{"blocksize", call.setting("upscale_factor", std::int64_t{1})},
             {"mode", std::string("CRD")}});
  return true;
}

/// Sizes, a transposition and sizes again. Dimension 0 stays what it is.
void reorder(EagerCall& call, const Numbers& split, const Numbers& order, Numbers joined) {
  joined[0] = 0;
  const std::string parts = call.part("Reshape", {call.input(0), call.integers("split", split)});
  const std::string moved = call.part("Transpose", {parts}, {{"perm", order}});
  call.emit("Reshape", {moved, call.integers("joined", joined)});
}

bool pixel_unshuffle(EagerCall& call) {
  if (call.rank(0) != 4) return call.refuse("expected [N, C, H, W]");
  const std::int64_t factor = call.setting("downscale_factor", std::int64_t{1});
  const Dims x = call.sizes(0);
  reorder(call, {0, x[1], x[2] / factor, factor, x[3] / factor, factor}, {0, 1, 3, 5, 2, 4},
          call.result_sizes().to_vector());
  return true;
}

bool channel_shuffle(EagerCall& call) {
  const std::int64_t groups = call.setting("groups", std::int64_t{1});
  Numbers split = call.sizes(0).to_vector();
  if (split.size() < 3) return call.refuse("expected [N, C, ...]");
  split[0] = 0;
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  Numbers order;
  for (std::size_t d = 0; d < split.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
  std::swap(order[1], order[2]);
  reorder(call, split, order, call.result_sizes().to_vector());
  return true;
}

/// Scales of the spatial dimensions, or sizes; dimension 0 and 1 stay.
void resize(EagerCall& call, const std::vector<double>& scales, OnnxAttributes attributes) {
  const Dims y = call.result_sizes();
  Names inputs{call.input(0), "", ""};
  if (!scales.empty()) {
    std::vector<float> all(y.size(), 1.0F);
    for (std::size_t i = 2; i < y.size(); ++i) {
      all[i] = static_cast<float>(scales.size() == 1 ? scales[0] : scales[i - 2]);
    }
    inputs[2] = call.weight("scales", Tensor::from_span(all));
  } else {
    Numbers sizes = y.to_vector();
    if (sizes[0] < 0) {
      Numbers axes;
      for (std::size_t d = 2; d < sizes.size(); ++d) axes.push_back(static_cast<std::int64_t>(d));
      sizes.erase(sizes.begin(), sizes.begin() + 2);
      attributes["axes"] = axes;
      call.need(18, "Resize along some axes");
    }
    inputs.push_back(call.integers("sizes", sizes));
  }
  call.need(11, "Resize");
  call.emit("Resize", std::move(inputs), std::move(attributes));
}

bool interpolate(EagerCall& call) {
  const std::string mode = call.setting("mode", std::string("nearest"));
  const bool is_linear = mode != "nearest" && mode != "nearest-exact";
  std::string position = mode == "nearest" ? "asymmetric" : "half_pixel";
  if (is_linear && call.setting("align_corners", false)) position = "align_corners";
  OnnxAttributes attributes{{"mode", std::string(is_linear ? "linear" : "nearest")},
                            {"coordinate_transformation_mode", position}};
  if (!is_linear) {
    attributes["nearest_mode"] = std::string(mode == "nearest" ? "floor" : "round_prefer_ceil");
  }
  std::vector<double> scales = call.setting("scale_factor", std::vector<double>{});
  if (call.setting("recompute_scale_factor", false)) scales.clear();
  resize(call, scales, std::move(attributes));
  return true;
}

constexpr EagerRow kRows[] = {
    {"cat", cat<false>},
    {"cat_relu", cat<true>},
    {"stack", stack},
    {"pad", pad},
    {"flip", flip},
    {"repeat", repeat},
    {"triu", triangle<true>},
    {"tril", triangle<false>},
    {"index_select", index_select},
    {"gather", gather},
    {"index", index},
    {"take", take},
    {"embedding", embedding},
    {"pixel_shuffle", pixel_shuffle},
    {"pixel_unshuffle", pixel_unshuffle},
    {"channel_shuffle", channel_shuffle},
    {"interpolate", interpolate},
};

}  // namespace

std::span<const EagerRow> eager_shapes() { return kRows; }

}  // namespace quanta::graph::detail
