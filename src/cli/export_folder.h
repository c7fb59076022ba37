// The folder that exported settings go to.
#pragma once

#include <string>
#include <vector>

#include "report/export.h"

namespace dspark {

/// A folder that files are written into, each whole or not at all; checked before any work is done
/// and created with the first file. What else is in it stays as it is.
class ExportFolder {
 public:
  /// Checks `path` and leaves no trace of that. Throws Error(usage) if it is empty, no folder, not
  /// writable, cannot be created (its parent has to exist), has something other than a file in the
  /// place of one to write, or has files under names that settings are written to and is no
  /// earlier export (README.md).
  explicit ExportFolder(const std::string& path);

  /// Throws Error(usage) if writing could overwrite one of `inputs` ("-" and files that do not
  /// exist are none): it stands in the folder under a name that settings are written to.
  void refuse_inputs(const std::vector<std::string>& inputs) const;

  /// Throws Error(usage) if `output` ("-": none) stands in the folder.
  void refuse_output(const std::string& output) const;

  /// Writes the files in their order, over those of the same name, and removes those of an earlier
  /// export that are not among them. Throws Error(internal) where writing fails; then the files
  /// before that one are written, and the others are as they were.
  void write(const std::vector<ExportFile>& files) const;

 private:
  std::string path_;
};

}  // namespace dspark
