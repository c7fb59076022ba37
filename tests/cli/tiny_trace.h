// Traces small enough to replay in milliseconds, written with the HDF5 library itself, and ways to
// spoil a copy.
#pragma once

#include <cstdint>
#include <string>

namespace dspark::test {

/// An anchors trace of made-up logits: V = 40, P = 3, H = 4, R = 2, two sequences of 6 and 5
/// positions, heads inside.
struct TinyTrace {
  double temperature = 1.0;     ///< 0: recorded greedily
  bool f32_attributes = false;  ///< temperature and top_p as f32 instead of f64
  bool with_confidence_head = true;
  bool with_draft_hidden = true;
  std::int64_t nan_row = -1;  ///< position whose target row has a NaN; -1: none
  std::int64_t impossible_token =
      -1;  ///< position after which a token of mass 0 is recorded; -1: none
};
void write_tiny_trace(const std::string& path, const TinyTrace& options = {});

/// Copies `from` to `to` and then changes the copy.
void copy_trace(const std::string& from, const std::string& to);
/// Removes a dataset or group.
void remove_object(const std::string& path, const std::string& name);
/// Multiplies every number of a dataset of floats, which keeps its type.
void scale_dataset(const std::string& path, const std::string& name, float factor);
/// Replaces an integer or text attribute of the root.
void set_root_attribute(const std::string& path, const std::string& name, std::int64_t value);
void set_root_attribute(const std::string& path, const std::string& name, const std::string& value);

}  // namespace dspark::test
