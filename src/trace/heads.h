// The head weights of a trace: where they are, whether they fit it, and how to go over them.
// Private to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/dataset.h"
#include "trace/hdf5.h"
#include "trace/impl.h"
#include "trace/schema.h"

namespace dspark {

/// Where the heads of a trace are: its own file, another one, or nowhere (empty path).
struct HeadsPlace {
  std::string path;
  bool inside = false;  ///< the trace's own group /heads
};
/// `heads_override` wins over /heads, which wins over `heads_file`. Does not look whether the file
/// exists.
[[nodiscard]] HeadsPlace find_heads(const OpenTrace& trace, const std::string& heads_override);

/// What is needed of lm_head and draft_lm_head, and why.
struct HeadsNeeds {
  bool target = false;  ///< target_hidden stands in for target_logits
  bool draft = false;   ///< draft_hidden stands in for draft_logits
  [[nodiscard]] bool any() const { return target || draft; }
  [[nodiscard]] const char* reason() const;
};
[[nodiscard]] HeadsNeeds heads_needs(const OpenTrace& trace);

/// The datasets of one /heads group, with their shapes checked against the attributes beside them
/// and against the trace.
struct HeadsGroup {
  std::string file;
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;         ///< 0: not known
  std::int32_t target_hidden_size = 0;  ///< 0: not known
  std::int32_t markov_rank = 0;         ///< 0: no Markov head
  bool confidence_with_markov = false;
  std::optional<h5::Dataset> markov_w1, markov_w2, confidence_weight, confidence_bias;
  std::optional<h5::Dataset> lm_head, draft_lm_head;

  /// All datasets that are there.
  [[nodiscard]] std::vector<const h5::Dataset*> datasets() const;
};

/// Opens /heads in `file`. `trace` (may be null) gives the sizes that the heads must fit; of
/// lm_head and draft_lm_head only what it needs is opened, and must be there. Without a trace
/// everything is opened. Reads no bulk data.
[[nodiscard]] HeadsGroup open_heads_group(const h5::File& file, const OpenTrace* trace);

/// The file at `place`, where it is not the trace itself; opened in a child process first
/// (probe.h).
[[nodiscard]] std::optional<h5::File> open_heads_file(const HeadsPlace& place,
                                                      const OpenTrace& trace);

/// Goes over the numbers of `data` in slices of rows and throws at the first that is not finite as
/// f32. With `keep`, they are also stored there (elements · size_of(type) bytes); without, memory
/// stays bounded.
void read_finite(const h5::Dataset& data, std::byte* keep);

}  // namespace dspark
