#!/usr/bin/env bash
# tools/bench/growth.sh BINARY FOLDER
#
# Times how cost grows with the vocabulary, the batch and the block size: FOLDER/growth_vocab.json, growth_batch.json and
# growth_block.json have every number, growth.md a table of microseconds per anchor (reduce) or per request (the others), with the
# cases that were refused below it. Run from the repository root, e.g.
#
#   tools/bench/growth.sh build/bin/dspark-replay build/growth
#
# A GPU needs minutes; so that the vocabularies mean something, use one.
set -euo pipefail

if [[ $# -ne 2 ]]; then
  echo "usage: $0 BINARY FOLDER" >&2
  exit 2
fi
binary=$1
folder=$2
mkdir -p "$folder"

# sweep NAME FLAGS...: 6 says that cases were refused; the others are there.
sweep() {
  local name=$1 status=0
  shift
  "$binary" bench "$@" --format json -o "$folder/growth_$name.json" || status=$?
  if [[ $status -ne 0 && $status -ne 6 ]]; then
    echo "$0: the $name sweep ended with exit code $status" >&2
    exit "$status"
  fi
}

rounds=sampled_proposal,greedy_proposal,probabilistic_accept
sweep vocab --only reduce --products tensor --vocab 8192,32768,65536,131072,262144 --block-size 7
sweep batch --only "$rounds" --batch 1,4,16,64,256
sweep block --only "$rounds" --block-size 1,2,4,8,16

python3 - "$folder" <<'PYTHON'
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
SIZES = ["anchors", "batch", "vocab", "rank", "block_size", "hidden", "top_k"]
COLUMNS = ["over", "case", "rule", "products", "anchors", "B", "V", "P", "us per call", "us per anchor or request", "x floor"]


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def row(cells):
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


lines, refused, device = [], [], None
for name in ["vocab", "batch", "block"]:
    result = json.loads((folder / f"growth_{name}.json").read_text())
    device = device or result
    for case in result["cases"]:
        entries = case["anchors"] or case["batch"]
        lines.append(row([name, case["family"], case["rule"], case["products"], case["anchors"], case["batch"], case["vocab"],
                          case["block_size"], number(case["median_us"]), number(case["median_us"] / entries),
                          number(case["times_floor"])]))
    for case in result["refused"]:
        kind = [case[field] for field in ("rule", "products") if case[field]]
        sizes = [f"{field} {case[field]}" for field in SIZES if case[field]]
        refused.append(f"- refused: {case['family']} ({', '.join(kind + sizes)}): {case['why']}")

commit = f", commit {device['commit']}" if device["commit"] else ""
text = [f"# Cost of growth: {device['device']['name']}, version {device['version']}{commit}", "", row(COLUMNS)]
text.append("|" + "".join(" --- |" if i < 4 else " ---: |" for i in range(len(COLUMNS))))
text += lines + ([""] + refused if refused else [])
(folder / "growth.md").write_text("\n".join(text) + "\n")
PYTHON
echo "$folder/growth.md"
