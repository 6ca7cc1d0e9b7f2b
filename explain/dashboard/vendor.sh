#!/bin/sh
# Fetches the libraries of the pages from the npm registry, at the versions below, into assets/vendor, and
# checks what came against SHA256SUMS there. Their code is as published, but for two things that a browser
# without an import map needs: imports name files, and uPlot's minified build ends with an export.
# Only changing a version needs this, and Node; neither building nor running does.
set -eu
cd "$(dirname "$0")/assets/vendor"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() { # package version
	file=$(cd "$work" && npm pack --silent "$1@$2")
	mkdir -p "$work/$1"
	tar -xzf "$work/$file" -C "$work/$1" --strip-components 1
}
fetch preact 11.2.0
fetch htm 3.1.1
fetch @preact/signals 2.11.4
fetch @preact/signals-core 1.14.5
fetch uplot 1.6.32

# The maps are not shipped, so nothing points to them.
module() {
	sed -e 's|"preact/hooks"|"./hooks.js"|g' -e 's|"preact"|"./preact.js"|g' \
		-e 's|"@preact/signals-core"|"./signals-core.js"|g' -e '/^\/\/# sourceMappingURL=/d' "$work/$1" >"$2"
}
module preact/dist/preact.mjs preact.js
module preact/hooks/dist/hooks.mjs hooks.js
module htm/dist/htm.module.js htm.js
module @preact/signals/dist/signals.module.js signals.js
module @preact/signals-core/dist/signals-core.module.js signals-core.js
module uplot/dist/uPlot.iife.min.js uPlot.js
printf '\nexport default uPlot;\n' >>uPlot.js
cp "$work/uplot/dist/uPlot.min.css" uPlot.css
cp "$work/preact/LICENSE" preact.LICENSE
cp "$work/htm/LICENSE" htm.LICENSE
cp "$work/@preact/signals/LICENSE" signals.LICENSE
cp "$work/uplot/LICENSE" uPlot.LICENSE
if [ "${1:-}" = --write-sums ]; then
	sha256sum ./*.js ./*.css ./*.LICENSE >SHA256SUMS
fi
sha256sum --check --quiet SHA256SUMS
