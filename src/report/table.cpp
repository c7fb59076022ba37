// The result as aligned columns for a terminal.
#include <string>
#include <vector>

#include "report/formats.h"
#include "report/layout.h"

namespace dspark {
std::string render_table(const ReplayResult& result, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : preamble(result)) out += line + '\n';
  for (const Section& section : make_sections(result, options)) {
    out += '\n' + section.title + '\n';
    if (!section.about.empty()) out += section.about + '\n';
    for (const Grid* grid : grids_of(section)) append_aligned(out, *grid);
  }
  return out;
}

}  // namespace dspark
