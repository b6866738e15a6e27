#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "registry.h"

namespace quanta::coverage {

/// A name of one of the five documents that Quanta was founded on, and the rows that cover it.
struct DocumentName {
  std::string document;  ///< "torch.nn.functional"
  std::string name;
  std::vector<const Row*> rows;
};

/// Every name of documents.md beside this file, in its order, with its rows in `table`. Throws
/// std::runtime_error when the file cannot be read.
std::vector<DocumentName> document_names(const std::filesystem::path& file,
                                         const std::vector<Section>& table);

/// The names as a table of Markdown.
std::string documents_to_markdown(const std::vector<DocumentName>& names);

}  // namespace quanta::coverage
