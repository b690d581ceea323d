#!/bin/sh
# Runs docker, podman or buildah, whichever works on this machine: engine.sh COMMAND ARGUMENT...
# "engine.sh save IMAGE FILE" writes an archive with each of them.
# CONTAINER_ENGINE names the one to use. Images of buildah are in build/containers, unless CONTAINERS_STORAGE_CONF is set.
set -eu
umask 022

store() {
	export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"
	[ -z "${CONTAINERS_STORAGE_CONF:-}" ] || return 0
	containers=$(realpath -m "$0/../../../build/containers")
	export CONTAINERS_STORAGE_CONF="$containers/storage.conf"
	[ ! -e "$CONTAINERS_STORAGE_CONF" ] || return 0
	mkdir -p "$containers"
	# A file system that is itself an overlay carries no other one.
	for driver in overlay vfs; do
		printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' \
			"$driver" "$containers/storage" "$containers/run" > "$CONTAINERS_STORAGE_CONF"
		! "$1" info >/dev/null 2>&1 || return 0
	done
	rm "$CONTAINERS_STORAGE_CONF"
}

tried=''
for engine in ${CONTAINER_ENGINE:-docker podman buildah} ''; do
	[ -n "$engine" ] || {
		echo "no container engine works: $tried: start or install one of them, or name another in CONTAINER_ENGINE" >&2
		exit 2
	}
	problem='not found'
	if command -v "$engine" >/dev/null; then
		case "$engine" in *buildah) store "$engine" ;; esac
		! "$engine" info >/dev/null 2>&1 || break
		problem='found, but "info" fails'
	fi
	tried="$tried${tried:+, }$engine ($problem)"
done

# Secrets are in no layer: a build gets the pip settings of this machine, and no file keeps them.
if [ "${1:-}" = build ]; then
	shift
	certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
	PIP_CONF=$(
		printf '[global]\n'
		[ -z "$certificates" ] || printf 'cert = /run/secrets/ca.crt\n'
		env | sed -n -e 's/^PIP_INDEX_URL=/index-url = /p' -e 's/^PIP_EXTRA_INDEX_URL=/extra-index-url = /p' \
			-e 's/^PIP_TRUSTED_HOST=/trusted-host = /p' -e 's/^PIP_DEFAULT_TIMEOUT=/timeout = /p'
	)
	export PIP_CONF
	# A cached layer may have other times, and the label another version of buildah.
	case "$engine" in *buildah | *podman)
		set -- ${SOURCE_DATE_EPOCH:+--timestamp "$SOURCE_DATE_EPOCH" --no-cache --identity-label=false} "$@"
		;;
	esac
	set -- build --secret id=pip.conf,env=PIP_CONF ${certificates:+--secret "id=ca.crt,src=$certificates"} "$@"
fi
if [ "${1:-}" = save ]; then
	rm -f "$3"
	case "$engine" in
	*buildah) set -- push --quiet "$2" "docker-archive:$3:$2" ;;
	*) set -- save --output "$3" "$2" ;;
	esac
fi
exec "$engine" "$@"
