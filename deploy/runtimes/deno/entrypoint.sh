#!/bin/sh
# Runs the function $SCRIPT, a path or a URL. It may use the network and files, and see
# DATA, SECURE_DATA and KEPTN_CONTEXT of the environment; CMD_ARGS has no meaning here.
set -eu

case "${SCRIPT-}" in
http://* | https://* | /*) ;;
*)
    # Anything else could be taken for an option.
    echo "SCRIPT must be an absolute path, or a URL of http or https" >&2
    exit 2
    ;;
esac

exec deno run --no-prompt --allow-net --allow-read --allow-write \
    --allow-env=DATA,SECURE_DATA,KEPTN_CONTEXT "$SCRIPT"
