#pragma once

// Private: what reads the messages of an ONNX file that hold each other: graphs, nodes, attributes.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "quanta/runtime/detail/onnx_message.h"
#include "quanta/runtime/detail/onnx_tensor.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta::detail {

/// Reads one file. All functions throw FileError.
class OnnxReader {
 public:
  OnnxReader(const OnnxLimits& limits, OnnxExternalData& external)
      : limits_(limits), external_(&external) {}

  OnnxModel read_model(OnnxMessage& message);

 private:
  /// Around a node.
  struct Where {
    int depth = 0;  ///< of graphs within nodes
    bool in_function = false;
  };
  struct Attribute {
    std::string name;
    std::optional<OnnxAttribute> value;  ///< nothing for a reference
    OnnxReference reference;
  };

  OnnxGraph read_graph(OnnxMessage& message, Where where);
  OnnxNode read_node(OnnxMessage& message, Where where);
  OnnxFunction read_function(OnnxMessage& message);
  Attribute read_attribute(OnnxMessage& message, Where where);
  std::shared_ptr<const OnnxGraph> read_inner_graph(OnnxMessage& message, Where where);

  OnnxLimits limits_;
  OnnxExternalData* external_;
  std::size_t nodes_ = 0;
};

}  // namespace quanta::detail
