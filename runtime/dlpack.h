#pragma once

#include "quanta/runtime/tensor.h"

/// What dlpack.h defines; include that (or any library's copy) to look inside.
struct DLManagedTensor;

/// Tensors to and from other libraries, without a copy, as DLPack says: the structures of its
/// version 0 ABI (DLManagedTensor, what Python's capsules named "dltensor" hold), in CPU memory.
///
/// Both sides see each other's writes, which is for the user to order; those of the other side do
/// not count in Tensor::version(). Many threads may call these functions at once, each with its
/// own DLManagedTensor.
namespace quanta {

/// The tensor for another library, with its sizes and strides: the caller, or the library that it
/// is handed to, calls its deleter once, on any thread; until then the memory stays.
///
/// Throws ArgumentError for an undefined tensor, for one that asks for gradients (detach() it) and
/// for one over read-only memory, which this ABI cannot say (clone() it); UnsupportedError for
/// quantized dtypes, which DLPack does not have (as_quantized().int_repr_view() gives the codes).
DLManagedTensor* to_dlpack(const Tensor& tensor);

/// A tensor over another library's memory. Takes over `managed`: its deleter (which may be null) is
/// called once, when the last tensor that uses the memory is gone. When it throws, `managed` stays
/// the caller's.
///
/// Bool elements have to be 0 or 1. Throws ArgumentError for null, more than Dims::kMaxDims or less
/// than 0 dimensions, missing or negative sizes, negative strides, missing or misaligned memory;
/// UnsupportedError for devices other than the CPU, vectors (lanes) and dtypes that Tensor does not
/// have.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace quanta
