#pragma once

#include <stdexcept>
#include <string>

/// What Quanta throws. Errors are plain values: a thread may hand one to another
/// (std::exception_ptr).
namespace quanta {

/// Base of everything Quanta throws. The text reads `op: argument: expected ..., got ...`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A caller passed something wrong: dtype, shape, range, missing key, wrong order of calls.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// The request is meaningful but there is no kernel for this device, dtype or layout.
/// The text says which do work.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, truncated, malformed or hostile. The text says what and where.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Numbers went where no calculation can go on from: a loss or a gradient that is NaN or infinite.
/// The text says which and when.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A library below us (oneDNN, CUDA, ...) reported a failure; the text has the failed call.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// A bug in Quanta itself.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace quanta
