// The module types that networks of pipeline cases are built from.

#include "network.h"
#include "options.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"

namespace quanta::conform {
namespace {

const ModuleRegistration kTypes{
    {"QuantStub", factory<nn::QuantStub>()},
    {"DeQuantStub", factory<nn::DeQuantStub>()},
    {"Identity", factory<nn::Identity>()},
    {"Flatten",
     factory<nn::Flatten, std::int64_t, std::int64_t>({{"start_dim", 1}, {"end_dim", -1}})},
    {"PixelShuffle", factory<nn::PixelShuffle, std::int64_t>({"upscale_factor"})},
    {"Upsample", factory<nn::Upsample, InterpolateOptions>()},
    {"Dropout", factory<nn::Dropout, double>({{"p", 0.5}})},
    {"Conv1d", factory<nn::Conv1d, nn::ConvNdOptions>()},
    {"Conv2d", factory<nn::Conv2d, nn::ConvNdOptions>()},
    {"Conv3d", factory<nn::Conv3d, nn::ConvNdOptions>()},
    {"ConvTranspose1d", factory<nn::ConvTranspose1d, nn::ConvTransposeNdOptions>()},
    {"ConvTranspose2d", factory<nn::ConvTranspose2d, nn::ConvTransposeNdOptions>()},
    {"ConvTranspose3d", factory<nn::ConvTranspose3d, nn::ConvTransposeNdOptions>()},
    {"Linear", factory<nn::Linear, nn::LinearOptions>()},
    {"BatchNorm1d", factory<nn::BatchNorm1d, nn::BatchNormOptions>()},
    {"BatchNorm2d", factory<nn::BatchNorm2d, nn::BatchNormOptions>()},
    {"BatchNorm3d", factory<nn::BatchNorm3d, nn::BatchNormOptions>()},
    {"InstanceNorm1d", factory<nn::InstanceNorm1d, nn::InstanceNormOptions>()},
    {"InstanceNorm2d", factory<nn::InstanceNorm2d, nn::InstanceNormOptions>()},
    {"InstanceNorm3d", factory<nn::InstanceNorm3d, nn::InstanceNormOptions>()},
    {"LayerNorm", factory<nn::LayerNorm, nn::LayerNormOptions>()},
    {"GroupNorm", factory<nn::GroupNorm, nn::GroupNormOptions>()},
    {"MaxPool1d", factory<nn::MaxPool1d, MaxPoolOptions>()},
    {"MaxPool2d", factory<nn::MaxPool2d, MaxPoolOptions>()},
    {"MaxPool3d", factory<nn::MaxPool3d, MaxPoolOptions>()},
    {"AvgPool1d", factory<nn::AvgPool1d, AvgPoolOptions>()},
    {"AvgPool2d", factory<nn::AvgPool2d, AvgPoolOptions>()},
    {"AvgPool3d", factory<nn::AvgPool3d, AvgPoolOptions>()},
    {"AdaptiveAvgPool1d", factory<nn::AdaptiveAvgPool1d, Dims>({"output_size"})},
    {"AdaptiveAvgPool2d", factory<nn::AdaptiveAvgPool2d, Dims>({"output_size"})},
    {"AdaptiveAvgPool3d", factory<nn::AdaptiveAvgPool3d, Dims>({"output_size"})},
    {"AdaptiveMaxPool1d", factory<nn::AdaptiveMaxPool1d, Dims>({"output_size"})},
    {"AdaptiveMaxPool2d", factory<nn::AdaptiveMaxPool2d, Dims>({"output_size"})},
    {"AdaptiveMaxPool3d", factory<nn::AdaptiveMaxPool3d, Dims>({"output_size"})},
    {"ReLU", factory<nn::ReLU>()},
    {"ReLU6", factory<nn::ReLU6>()},
    {"Hardswish", factory<nn::Hardswish>()},
    {"Hardsigmoid", factory<nn::Hardsigmoid>()},
    {"SiLU", factory<nn::SiLU>()},
    {"Sigmoid", factory<nn::Sigmoid>()},
    {"Tanh", factory<nn::Tanh>()},
    {"Hardtanh", factory<nn::Hardtanh, double, double>({{"min_val", -1.0}, {"max_val", 1.0}})},
    {"LeakyReLU", factory<nn::LeakyReLU, double>({{"negative_slope", 0.01}})},
    {"ELU", factory<nn::ELU, double>({{"alpha", 1.0}})},
    {"GELU", factory<nn::GELU, GeluApproximation>({{"approximate", "none"}})},
    {"CELU", factory<nn::CELU, double>({{"alpha", 1.0}})},
    {"SELU", factory<nn::SELU>()},
    {"Mish", factory<nn::Mish>()},
    {"Softplus", factory<nn::Softplus, double, double>({{"beta", 1.0}, {"threshold", 20.0}})},
    {"Softsign", factory<nn::Softsign>()},
    {"LogSigmoid", factory<nn::LogSigmoid>()},
    {"Softmax", factory<nn::Softmax, std::int64_t>({"dim"})},
    {"LogSoftmax", factory<nn::LogSoftmax, std::int64_t>({"dim"})},
    {"PReLU", factory<nn::PReLU, std::int64_t, double>({{"num_parameters", 1}, {"init", 0.25}})},
};

}  // namespace
}  // namespace quanta::conform
