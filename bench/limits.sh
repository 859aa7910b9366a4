#!/bin/bash
# Limits and shares: two hosts with keys at one target, each reading from an export of its own.
#
#   bench/limits.sh [--tyche PROGRAM] [--links "2 1"] [--turns NUMBER] [--runtime SECONDS]
#
# Needs root, ip, taskset and python3. Everything is inside of this machine: the namespaces of two
# hosts and of the target between them, joined by two links of the target, one for each host, or by
# a bridge to its only link. The target runs on the last core, the hosts on the others.
#
# Prints medians of the turns: of a noisy host (4 KiB, depth 32) and of a quiet one (depth 1).
set -euo pipefail

TYCHE=target/release/tyche LINKS="2 1" TURNS=3 RUNTIME=3
while [ $# -gt 0 ]; do
    case $1 in
        --tyche) TYCHE=$2 ;; --links) LINKS=$2 ;; --turns) TURNS=$2 ;; --runtime) RUNTIME=$2 ;;
        *) sed -n '2,10p' "$0"; exit 2 ;;
    esac
    shift 2
done
TYCHE=$(realpath "$TYCHE")
TMP=$(mktemp -d)
export TYCHE_RUNTIME_DIR=$TMP/run TYCHE_STATE_DIR=$TMP/state TYCHE_LOG_DIR=$TMP/log
export TYCHE_KNOWN_TARGETS=$TMP/known
A=tyche-a-$$ B=tyche-b-$$ T=tyche-t-$$ LAST=$(($(nproc) - 1))
declare -A ID=(["$A"]=11111111-1111-4111-8111-111111111111
    ["$B"]=22222222-2222-4222-8222-222222222222)
trap finish EXIT

inside() { exec nsenter --net=/var/run/netns/"$1" "${@:2}"; }
finish() {
    stop
    for name in $A $B $T; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$TMP"
}
stop() {
    [ -z "${target:-}" ] && return
    kill "$target" 2>/dev/null || true
    wait "$target" 2>/dev/null || true
    target=
}

for name in $A $B $T; do
    ip netns add "$name"
    "$TYCHE" key generate "$TMP/$name.key" >/dev/null
done
key() { "$TYCHE" key show "$TMP/$1.key"; }

# Joins the hosts to so many links of the target: UPLINKS is what `serve` calls them.
lay() {
    local number=0 name
    for name in $A $B; do
        ip -n "$T" link del "port$number" 2>/dev/null || true
        ip link add "port$number" mtu 9000 netns "$T" type veth peer name eth0 mtu 9000 netns "$name"
        ip -n "$name" link set eth0 up
        ip -n "$T" link set "port$number" up
        number=$((number + 1))
    done
    UPLINKS='["port0", "port1"]'
    [ "$1" = 2 ] && return
    ip -n "$T" link add br0 type bridge
    ip -n "$T" link add uplink mtu 9000 type veth peer name port2 mtu 9000
    for name in port0 port1 port2; do ip -n "$T" link set "$name" master br0; done
    for name in port2 uplink br0; do ip -n "$T" link set "$name" up; done
    UPLINKS='["uplink"]'
}

# Starts the target with these lines in the table of the noisy host, and in that of its export.
serve() {
    stop
    cat >"$TMP/target.toml" <<C
name = "limits"
link = $UPLINKS
key = "$TMP/$T.key"
[[host]]
name = "noisy"
key = "$(key "$A")"
$1
[[host]]
name = "quiet"
key = "$(key "$B")"
[[export]]
name = "one"
path = "mem:64M"
shared = true
$2
[[export]]
name = "two"
path = "mem:64M"
C
    inside "$T" taskset --cpu-list "$LAST" "$TYCHE" serve --config "$TMP/target.toml" \
        >"$TMP/ready" 2>"$TMP/errors" &
    target=$!
    until [ -s "$TMP/ready" ]; do
        kill -0 "$target" 2>/dev/null || { cat "$TMP/errors" >&2; exit 1; }
        sleep 0.05
    done
}

# A load of a host: namespace, export, depth, and further options. Prints what `tyche bench` measures.
load() {
    local name=$1 export=$2 depth=$3
    shift 3
    (inside "$name" taskset --cpu-list "0-$((LAST > 0 ? LAST - 1 : 0))" "$TYCHE" bench "$export" \
        --link eth0 --host-id "${ID[$name]}" --key "$TMP/$name.key" --target-key "$(key "$T")" \
        --iodepth "$depth" --runtime "$RUNTIME" -o json "$@")
}

# Two loads at once: their output is in the files noisy and quiet, one for each turn.
both() { # NAME, ARGUMENTS of the noisy one, ARGUMENTS of the quiet one
    local turn=$4 other
    load $2 >"$TMP/$1.noisy.$turn" & other=$!
    load $3 >"$TMP/$1.quiet.$turn"
    wait $other
}

cat >"$TMP/median.py" <<'P'
import glob, json, statistics, sys
def values(name, key):
    found = [json.load(open(file)) for file in sorted(glob.glob(f"{sys.argv[1]}/{name}.*"))]
    for part in key.split("."): found = [it[part] for it in found]
    return found
kind, name = sys.argv[2:4]
if kind == "ratio":
    one, two = values(name + ".noisy", "iops"), values(name + ".quiet", "iops")
    print(f"{statistics.median(a / b for a, b in zip(one, two)):.2f}")
elif kind == "us":
    print(f"{statistics.median(values(name, 'lat_ns.p50')) / 1e3:.0f} us")
else:
    got = values(name, kind)
    print(f"{statistics.median(got):.0f} ({min(got):.0f} to {max(got):.0f})")
P
say() { printf '  %-58s %s\n' "$1" "$(python3 "$TMP/median.py" "$TMP" "$2" "$3")"; }

for links in $LINKS; do
    lay "$links"
    rm -f "$TMP"/*.[0-9]*
    for turn in $(seq "$TURNS"); do
        serve "" ""
        load "$B" two 1 >"$TMP/alone.$turn"
        both free "$A one 32" "$B two 1" "$turn"
        both equal "$A one 32" "$B two 32" "$turn"
        serve "iops = 10000" ""
        both limited "$A one 32" "$B two 1" "$turn"
        serve "" "iops = 20000"
        both shared "$A one 128" "$B one 8" "$turn"
        serve 'bytes_per_second = "100M"' ""
        load "$A" one 16 --rw read --bs 64k >"$TMP/bytes.$turn"
    done
    echo "$links link(s) of the target, $TURNS turns of $RUNTIME s:"
    say "noisy host with a limit of 10,000: requests a second" iops limited.noisy
    say "quiet host beside it: median latency" us limited.quiet
    say "quiet host alone" us alone
    say "quiet host beside a noisy one without a limit" us free.quiet
    say "two equal hosts without limits: one by the other" ratio equal
    say "an export's limit of 20,000, depth 128 by depth 8" ratio shared
    say "a host's limit of 100 MiB (104857600) a second: bytes" bytes_per_s bytes
done
