// The result as GitHub Markdown, for issues and pull requests.
#include <string>

#include "report/formats.h"
#include "report/layout.h"

namespace dspark {
std::string render_markdown(const ReplayResult& result, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : preamble(result)) {
    if (!out.empty()) out += "  \n";  // two spaces: a line break
    out += markdown_text(line);
  }
  out += '\n';
  for (const Section& section : make_sections(result, options)) {
    out += "\n### " + markdown_text(section.title) + '\n';
    if (!section.about.empty()) out += '\n' + markdown_text(section.about) + '\n';
    for (const Grid* grid : grids_of(section)) append_markdown(out, *grid);
  }
  return out;
}

}  // namespace dspark
