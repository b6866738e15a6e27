#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/file_access.h"

namespace quanta::cli {

/// A network for Fashion-MNIST and what is fused in it.
struct FashionNetwork {
  std::shared_ptr<nn::Module> net;
  std::vector<std::vector<std::string>> fusion_groups;
};

/// The names that make_fashion_network takes.
std::vector<std::string> fashion_network_names();
/// A network in eval mode. Throws ArgumentError for another name.
FashionNetwork make_fashion_network(const std::string& name);

/// The weights that come with Quanta.
std::filesystem::path fashion_weights(const std::string& name);
/// Loads float weights, or what save_model wrote, into a fresh network; "float" or "saved model" for
/// tables. With FileAccess::Map several processes share the file's pages. Throws FileError.
std::string load_weights(nn::Module& net, const std::filesystem::path& path, FileAccess access);

}  // namespace quanta::cli
