#!/bin/sh
# Says what a long command is for, how long it takes, and hides its output unless it fails:
#     sh tools/step.sh "Compiling the broker" COMMAND WORDS...
what=$1
shift
log=$(mktemp) || exit 1
began=$(date +%s)
seconds() { echo $(($(date +%s) - began)); }

"$@" >"$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -f "$log"; echo; exit 130' INT TERM HUP

if [ -t 1 ]; then
    while kill -0 "$pid" 2>/dev/null; do
        printf '\r%s ... %s s' "$what" "$(seconds)"
        sleep 0.2
    done
    printf '\r'
else
    echo "$what ..."
fi
wait "$pid"
status=$?
if [ "$status" = 0 ]; then
    echo "$what: done in $(seconds) s"
else
    echo "$what: failed after $(seconds) s with status $status. It said:"
    sed 's/^/    /' "$log"
fi
rm -f "$log"
exit "$status"
