#include "options.h"

#include <string>

#include "quanta/runtime/error.h"

namespace quanta::conform {
namespace {

/// Padding as text: "valid", or "same": as many elements as x has, which padding on both sides
/// alike gives for kernels that span an odd number.
Dims named_padding(const std::string& name, const nn::ConvNdOptions& options) {
  if (name == "valid") return {0};
  Dims padding = options.kernel_size;
  for (std::size_t d = 0; d < padding.size(); ++d) {
    const std::int64_t dilation = options.dilation[options.dilation.size() == 1 ? 0 : d];
    const std::int64_t span = dilation * (padding[d] - 1);
    if (span % 2 != 0) throw UnsupportedError("args: padding: no 'same' for an even kernel here");
    padding[d] = span / 2;
  }
  return padding;
}

}  // namespace

// Functions ---------------------------------------------------------------------------------------

void take(const Arguments& given, ReduceOptions& options) { given("keepdim", options.keepdim); }

void take(const Arguments& given, StdOptions& options) {
  bool unbiased = options.correction != 0.0;
  given("unbiased", unbiased);
  options.correction = unbiased ? 1.0 : 0.0;
  given("correction", options.correction);
  given("keepdim", options.keepdim);
}

void take(const Arguments& given, SortOptions& options) {
  given("dim", options.dim);
  given("descending", options.descending);
}

void take(const Arguments& given, TopkOptions& options) {
  given("dim", options.dim);
  given("largest", options.largest);
  given("sorted", options.sorted);
}

void take(const Arguments& given, ConvOptions& options) {
  given("stride", options.stride);
  given("padding", options.padding);
  given("dilation", options.dilation);
  given("groups", options.groups);
}

void take(const Arguments& given, ConvTransposeOptions& options) {
  given("stride", options.stride);
  given("padding", options.padding);
  given("output_padding", options.output_padding);
  given("dilation", options.dilation);
  given("groups", options.groups);
}

void take(const Arguments& given, MaxPoolOptions& options) {
  given("kernel_size", options.kernel_size);
  given("stride", options.stride);
  given("padding", options.padding);
  given("dilation", options.dilation);
  given("ceil_mode", options.ceil_mode);
}

void take(const Arguments& given, AvgPoolOptions& options) {
  given("kernel_size", options.kernel_size);
  given("stride", options.stride);
  given("padding", options.padding);
  given("ceil_mode", options.ceil_mode);
  given("count_include_pad", options.count_include_pad);
  given("divisor_override", options.divisor_override);
}

void take(const Arguments& given, InterpolateOptions& options) {
  given("size", options.size);
  given("scale_factor", options.scale_factor);
  given("mode", options.mode);
  given("align_corners", options.align_corners);
  given("recompute_scale_factor", options.recompute_scale_factor);
}

void take(const Arguments& given, BinaryLossOptions& options) {
  given("reduction", options.reduction);
}

void take(const Arguments& given, ClassLossOptions& options) {
  given("reduction", options.reduction);
  given("ignore_index", options.ignore_index);
  given("label_smoothing", options.label_smoothing);
}

void take(const Arguments& given, quantized::NBitPrepackOptions& options) {
  given("optimized_qparams", options.optimized_qparams);
  given("nbins", options.nbins);
  given("ratio", options.ratio);
}

// Modules -----------------------------------------------------------------------------------------

void take(const Arguments& given, nn::ConvNdOptions& options) {
  given("in_channels", options.in_channels);
  given("out_channels", options.out_channels);
  given("kernel_size", options.kernel_size);
  given("stride", options.stride);
  given("dilation", options.dilation);
  if (given.is_text("padding")) {
    std::string name;
    given("padding", name);
    options.padding = named_padding(name, options);
  } else {
    given("padding", options.padding);
  }
  given("padding_mode", options.padding_mode);
  given("groups", options.groups);
  given("bias", options.bias);
}

void take(const Arguments& given, nn::ConvTransposeNdOptions& options) {
  given("in_channels", options.in_channels);
  given("out_channels", options.out_channels);
  given("kernel_size", options.kernel_size);
  given("stride", options.stride);
  given("padding", options.padding);
  given("output_padding", options.output_padding);
  given("groups", options.groups);
  given("bias", options.bias);
  given("dilation", options.dilation);
}

void take(const Arguments& given, nn::LinearOptions& options) {
  given("in_features", options.in_features);
  given("out_features", options.out_features);
  given("bias", options.bias);
}

void take(const Arguments& given, nn::BatchNormOptions& options) {
  given("num_features", options.num_features);
  given("eps", options.eps);
  given("momentum", options.momentum);
  given("affine", options.affine);
  given("track_running_stats", options.track_running_stats);
}

void take(const Arguments& given, nn::InstanceNormOptions& options) {
  given("num_features", options.num_features);
  given("eps", options.eps);
  given("momentum", options.momentum);
  given("affine", options.affine);
  given("track_running_stats", options.track_running_stats);
}

void take(const Arguments& given, nn::LayerNormOptions& options) {
  given("normalized_shape", options.normalized_shape);
  given("eps", options.eps);
  given("elementwise_affine", options.elementwise_affine);
  given("bias", options.bias);
}

void take(const Arguments& given, nn::GroupNormOptions& options) {
  given("num_groups", options.num_groups);
  given("num_channels", options.num_channels);
  given("eps", options.eps);
  given("affine", options.affine);
}

void take(const Arguments& given, nn::RecurrentOptions& options) {
  given("input_size", options.input_size);
  given("hidden_size", options.hidden_size);
  given("num_layers", options.num_layers);
  given("bias", options.bias);
  given("batch_first", options.batch_first);
  given("dropout", options.dropout);
  given("bidirectional", options.bidirectional);
  given("proj_size", options.proj_size);
}

void take(const Arguments& given, nn::CellOptions& options) {
  given("input_size", options.input_size);
  given("hidden_size", options.hidden_size);
  given("bias", options.bias);
}

void take(const Arguments& given, nn::EmbeddingOptions& options) {
  given("num_embeddings", options.num_embeddings);
  given("embedding_dim", options.embedding_dim);
  given("padding_idx", options.padding_idx);
}

void take(const Arguments& given, nn::EmbeddingBagOptions& options) {
  given("num_embeddings", options.num_embeddings);
  given("embedding_dim", options.embedding_dim);
  given("mode", options.mode);
  given("include_last_offset", options.include_last_offset);
  given("padding_idx", options.padding_idx);
}

void take(const Arguments& given, nn::MultiheadAttentionOptions& options) {
  given("embed_dim", options.embed_dim);
  given("num_heads", options.num_heads);
  given("dropout", options.dropout);
  given("bias", options.bias);
  given("add_bias_kv", options.add_bias_kv);
  given("add_zero_attn", options.add_zero_attn);
  given("kdim", options.kdim);
  given("vdim", options.vdim);
  given("batch_first", options.batch_first);
}

void take(const Arguments& given, nn::TransformerLayerOptions& options) {
  given("d_model", options.d_model);
  given("nhead", options.nhead);
  given("dim_feedforward", options.dim_feedforward);
  given("dropout", options.dropout);
  given("activation", options.activation);
  given("layer_norm_eps", options.layer_norm_eps);
  given("batch_first", options.batch_first);
  given("norm_first", options.norm_first);
  given("bias", options.bias);
}

// Optimizers --------------------------------------------------------------------------------------

void take(const Arguments& given, optim::SGDOptions& options) {
  given("lr", options.lr);
  given("momentum", options.momentum);
  given("dampening", options.dampening);
  given("weight_decay", options.weight_decay);
  given("nesterov", options.nesterov);
}

void take(const Arguments& given, optim::AdamOptions& options) {
  std::vector<double> betas{options.beta1, options.beta2};
  given("lr", options.lr);
  given("betas", betas);
  given("eps", options.eps);
  given("weight_decay", options.weight_decay);
  given("amsgrad", options.amsgrad);
  options.beta1 = betas.at(0);
  options.beta2 = betas.at(1);
}

}  // namespace quanta::conform
