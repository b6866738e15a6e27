#pragma once

// Private: the lists of dtypes that the catalogue's rows share.

#include <array>

#include "quanta/runtime/dtype.h"

namespace quanta::dtypes {

inline constexpr std::array kBool{DType::Bool};
inline constexpr std::array kFloat{DType::Float32};
inline constexpr std::array kFloats{DType::Float32, DType::Float64};
inline constexpr std::array kFloating{DType::Float32, DType::Float64, DType::Float16,
                                      DType::BFloat16};
inline constexpr std::array kFloatBFloat16{DType::Float32, DType::BFloat16};
inline constexpr std::array kFloatsQ{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8,
                                     DType::QInt32};
inline constexpr std::array kFloatsQ8{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8};
inline constexpr std::array kFloatsQuantized{DType::Float32, DType::Float64, DType::QUInt8,
                                             DType::QInt8,   DType::QInt32,  DType::QUInt4x2,
                                             DType::QUInt2x4};
inline constexpr std::array kIntegers{DType::UInt8,  DType::Int8,  DType::Int16,
                                      DType::UInt16, DType::Int32, DType::Int64};
inline constexpr std::array kIntegersBool{DType::UInt8, DType::Int8,  DType::Int16, DType::UInt16,
                                          DType::Int32, DType::Int64, DType::Bool};
inline constexpr std::array kFloatsIntegers{DType::Float32, DType::Float64, DType::UInt8,
                                            DType::Int8,    DType::Int16,   DType::UInt16,
                                            DType::Int32,   DType::Int64};
inline constexpr std::array kFloatIntegers{DType::Float32, DType::UInt8, DType::Int8, DType::Int16,
                                           DType::UInt16,  DType::Int32, DType::Int64};
/// Plain dtypes.
inline constexpr std::array kPlain{
    DType::Float32,    DType::Float64, DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
    DType::Float8E5M2, DType::UInt8,   DType::Int8,    DType::Int16,    DType::UInt16,
    DType::Int32,      DType::Int64,   DType::Bool};
inline constexpr std::array kNumbers{DType::Float32, DType::Float64, DType::Int32, DType::Int64};
inline constexpr std::array kIndices{DType::Int64, DType::Int32};
inline constexpr std::array kQUInt8{DType::QUInt8};
inline constexpr std::array kQUInt4x2{DType::QUInt4x2};
inline constexpr std::array kQ8{DType::QUInt8, DType::QInt8};
inline constexpr std::array kFloatQ8{DType::Float32, DType::QUInt8, DType::QInt8};
inline constexpr std::array kQ{DType::QUInt8, DType::QInt8, DType::QInt32};
inline constexpr std::array kQuantized{DType::QUInt8, DType::QInt8, DType::QInt32, DType::QUInt4x2,
                                       DType::QUInt2x4};
/// Codes first, as they are what dequantizing is for.
inline constexpr std::array kDequantized{DType::QUInt8,       DType::QInt8,     DType::QInt32,
                                         DType::QUInt4x2,     DType::QUInt2x4,  DType::Float32,
                                         DType::Float64,      DType::Float16,   DType::BFloat16,
                                         DType::Float8E4M3FN, DType::Float8E5M2};
/// Anything whose elements are whole bytes is only moved.
inline constexpr std::array kWholeBytes{
    DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
    DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
    DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
    DType::Bool,         DType::QUInt8,     DType::QInt8,   DType::QInt32};
/// Compared as numbers, or dequantized first.
inline constexpr std::array kEvery{
    DType::Float32,    DType::Float64,  DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
    DType::Float8E5M2, DType::UInt8,    DType::Int8,    DType::Int16,    DType::UInt16,
    DType::Int32,      DType::Int64,    DType::Bool,    DType::QUInt8,   DType::QInt8,
    DType::QInt32,     DType::QUInt4x2, DType::QUInt2x4};
/// What C++ can order.
inline constexpr std::array kOrdered{DType::Float32, DType::Float64, DType::UInt8, DType::Int8,
                                     DType::Int16,   DType::UInt16,  DType::Int32, DType::Int64,
                                     DType::Bool,    DType::QUInt8,  DType::QInt8, DType::QInt32};
inline constexpr std::array kOrderedPlain{DType::Float32, DType::Float64, DType::UInt8,
                                          DType::Int8,    DType::Int16,   DType::UInt16,
                                          DType::Int32,   DType::Int64,   DType::Bool};
inline constexpr std::array kCodes{DType::UInt8, DType::Int8, DType::Int32};
inline constexpr std::array kUInt8{DType::UInt8};

}  // namespace quanta::dtypes
