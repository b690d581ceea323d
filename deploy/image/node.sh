#!/bin/sh
# Builds the images that a real node runs besides the product's, as archives:
# node.sh DIRECTORY VERSION PYTHON_IMAGE DENO, where DENO is Deno's executable for glibc. It needs Debian's busybox-static.
set -eu
here=$(realpath "$(dirname "$0")")
busybox=$(command -v busybox) || {
	echo "busybox not found: apt-get install --yes busybox-static" >&2
	exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$1"

image() { # NAME:TAG CONTEXT ARGUMENT...
	reference=registry.example.com/$1 context=$2
	shift 2
	"$here/engine.sh" build --quiet --tag "$reference" "$@" "$context" >/dev/null
	name=${reference##*/}
	"$here/engine.sh" save "$reference" "$directory/${name%:*}.tar" >/dev/null
	echo "$directory/${name%:*}.tar"
}

directory=$1
cp "$busybox" "$work/busybox"
for target in busybox pause; do
	image "$target:1" "$work" --file "$here/node/Dockerfile" --target "$target"
done
cp "$4" "$work/deno"
printf 'FROM %s\nCOPY deno /usr/local/bin/deno\n' "$3" > "$work/Dockerfile"
"$here/engine.sh" build --quiet --tag localhost/harbourmaster-deno-base:debian "$work" >/dev/null
image "harbourmaster-python:$2" "$here/../runtimes/python" --build-arg "PYTHON_IMAGE=$3"
image "harbourmaster-deno:$2" "$here/../runtimes/deno" --build-arg DENO_IMAGE=localhost/harbourmaster-deno-base:debian
