#!/bin/sh
# Runs docker, podman or buildah, whichever works on this machine: engine.sh COMMAND ARGUMENT...
# "engine.sh save IMAGE FILE" writes an archive with each of them.
# CONTAINER_ENGINE names the one to use. Images of buildah are in build/containers, unless CONTAINERS_STORAGE_CONF is set.
set -eu
build=$(realpath "$(dirname "$0")/../../build")

store() {
	export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}" BUILDAH_FORMAT="${BUILDAH_FORMAT:-docker}"
	[ -z "${CONTAINERS_STORAGE_CONF:-}" ] || return 0
	export CONTAINERS_STORAGE_CONF="$build/containers/storage.conf"
	[ ! -e "$CONTAINERS_STORAGE_CONF" ] || return 0
	mkdir -p "$build/containers"
	# A file system that is itself an overlay carries no other one.
	for driver in overlay vfs; do
		printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' \
			"$driver" "$build/containers/storage" "$build/containers/run" > "$CONTAINERS_STORAGE_CONF"
		! "$1" info >/dev/null 2>&1 || return 0
	done
	rm "$CONTAINERS_STORAGE_CONF"
}

for engine in ${CONTAINER_ENGINE-docker podman buildah} ''; do
	case "$engine" in *buildah) ! command -v "$engine" >/dev/null || store "$engine" ;; esac
	[ -z "$engine" ] || ! "$engine" info >/dev/null 2>&1 || break
done
[ -n "$engine" ] || {
	echo "no container engine: start docker or podman, install buildah, or set CONTAINER_ENGINE=" >&2
	exit 2
}

# What pip needs on this machine to reach its index is lent to a build, and stays out of the image.
if [ "${1:-}" = build ]; then
	shift
	certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
	mkdir -p "$build"
	{
		printf '[global]\n'
		[ -z "$certificates" ] || printf 'cert = /run/secrets/ca.crt\n'
		env | sed -n -e 's/^PIP_INDEX_URL=/index-url = /p' -e 's/^PIP_EXTRA_INDEX_URL=/extra-index-url = /p' \
			-e 's/^PIP_TRUSTED_HOST=/trusted-host = /p' -e 's/^PIP_DEFAULT_TIMEOUT=/timeout = /p'
	} > "$build/pip.conf"
	set -- build --secret "id=pip.conf,src=$build/pip.conf" \
		${certificates:+--secret "id=ca.crt,src=$certificates"} "$@"
fi
if [ "${1:-}" = save ]; then
	rm -f "$3"
	case "$engine" in
	*buildah) set -- push --quiet "$2" "docker-archive:$3:$2" ;;
	*) set -- save --output "$3" "$2" ;;
	esac
fi
exec "$engine" "$@"
