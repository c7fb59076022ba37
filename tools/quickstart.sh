#!/usr/bin/env bash
# tools/quickstart.sh [--no-install]
#
# From a fresh Debian 12 or Ubuntu 24.04 to a result: installs the packages that are missing (as root or through sudo),
# builds the tool and replays a recorded trace that comes with it. Repeating it is cheap. With a CUDA Toolkit the CUDA
# backend is built too.
#
#   --no-install   install nothing; everything needed is there
#
# Environment: BUILD_DIR (default: build), CI (set: warnings are errors).
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

prepare "$0" "$@"
configure
build build --target dspark-replay

cd "$ROOT"
say "dspark-replay run traces/code_t1.h5 -p configs/sweep.yaml"
"$BUILD_DIR/bin/dspark-replay" run traces/code_t1.h5 -p configs/sweep.yaml
