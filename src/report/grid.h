// What a person reads, before it is laid out: titles and grids of finished cells, for the terminal
// and for Markdown.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "replay/result.h"
#include "report/render.h"

namespace dspark {

/// One column; `cells` are escaped, finished texts, "-" where a number does not exist.
struct GridColumn {
  std::string header;
  bool is_number = true;  ///< to the right
  std::vector<std::string> cells;
};

/// Columns of equal length; no columns where there is nothing to show.
struct Grid {
  std::vector<GridColumn> columns;
  [[nodiscard]] std::size_t rows() const {
    return columns.empty() ? 0 : columns.front().cells.size();
  }
  /// A cell for every column.
  void add_row(std::vector<std::string> cells) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i].cells.push_back(std::move(cells[i]));
  }
};

/// One trace under one verification and sampling setting.
struct Section {
  std::string title;  ///< file, verification and, where there are several, the setting
  std::string about;  ///< what was recorded; empty where the result has no summary of the trace
  Grid positions;
  Grid policies;  ///< best first, ranked within the section
  Grid bounds;    ///< the oracles, with the columns of the policies
  Grid ledger;    ///< of the best row and of the reference; empty unless asked for
  Grid strata;    ///< the parts of the trace, with their means
  Grid best;      ///< the best policy by requests in flight
  Grid pairs;     ///< greedy beside probabilistic
};

/// What ran, and under which cost: one or more lines, without newline.
[[nodiscard]] std::vector<std::string> preamble(const ReplayResult& result);

/// The sections in the order of the traces, then of the rows; where there are several
/// concurrencies, one for each of them, and one with the best policies; behind them one for every
/// two replays that are greedy and probabilistic side by side; at the end, where there are several
/// traces, one that compares them.
[[nodiscard]] std::vector<Section> make_sections(const ReplayResult& result,
                                                 const RenderOptions& options);

/// The grids of a section in the order in which they are shown, empty ones left out.
[[nodiscard]] std::vector<const Grid*> grids_of(const Section& section);

}  // namespace dspark
