#!/bin/bash
# Shares of a bottleneck: one session of Tyche, reading in bulk, beside TCP streams with CUBIC.
#
#   bench/congestion.sh [--tyche PROGRAM] [--lab PROGRAM] [--rates "10 100 500"]
#                       [--rtts "1 20 100"] [--queues "10 100"] [--kinds "drop-tail fq-codel
#                       fq-codel-ecn"] [--streams "1 4"] [--links "udp ethernet"]
#                       [--ramp SECONDS] [--runtime SECONDS] [--at-once NUMBER] [--out FILE]
#
# Mbit/s, ms, ms. Needs root, ip, python3, and the programs tyche and tyche-lab. Everything is
# inside of this machine: each cell has two namespaces, the host's and the target's, and
# `tyche-lab bottleneck` between them. Reads and TCP meet in its queue, on the way to the host.
#
# Each cell has these runs: alone, beside each number of streams, two sessions, and single reads of
# 4 KiB beside a bulk session and beside a TCP stream. Slow paths need little of a processor: cells
# of up to 10 Mbit/s run AT_ONCE at a time, those of up to 100 a third of that, all others alone.
set -euo pipefail

TYCHE=target/release/tyche LAB=target/release/tyche-lab RATES="10 100 500" RTTS="1 20 100"
QUEUES="10 100" KINDS="drop-tail fq-codel fq-codel-ecn" STREAMS="1 4" LINKS="udp ethernet"
RAMP=10 RUNTIME=15 AT_ONCE=8 OUT=docs/measurements/congestion.md
while [ $# -gt 0 ]; do
    case $1 in
        --tyche) TYCHE=$2 ;; --lab) LAB=$2 ;; --rates) RATES=$2 ;; --rtts) RTTS=$2 ;;
        --queues) QUEUES=$2 ;; --kinds) KINDS=$2 ;; --streams) STREAMS=$2 ;; --links) LINKS=$2 ;;
        --ramp) RAMP=$2 ;; --runtime) RUNTIME=$2 ;; --at-once) AT_ONCE=$2 ;; --out) OUT=$2 ;;
        *) sed -n '2,17p' "$0"; exit 2 ;;
    esac
    shift 2
done
TYCHE=$(realpath "$TYCHE") LAB=$(realpath "$LAB")
TMP=$(mktemp -d)
export TYCHE_STATE_DIR=$TMP/state TYCHE_LOG_DIR=$TMP/log
trap 'rm -rf "$TMP"' EXIT

at() { local name=$1; shift; nsenter --net=/var/run/netns/"$name" "$@"; }
inside() { exec nsenter --net=/var/run/netns/"$1" "${@:2}"; }

# The streams send from the target's side, as its data go.
cat >"$TMP/tcp.py" <<'P'
import socket, sys, threading, time
def cubic(s):
    s.setsockopt(socket.IPPROTO_TCP, 13, b"cubic")
if sys.argv[1] == "send":
    listener = socket.create_server(("0.0.0.0", int(sys.argv[2])))
    cubic(listener)
    def feed(s):
        block = bytes(1 << 16)
        try:
            while True: s.sendall(block)
        except OSError: pass
    def answer(s):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        block = bytes(4096)
        while s.recv(1): s.sendall(block)
    while True:
        s, _ = listener.accept()
        kind = s.recv(1)
        threading.Thread(target=feed if kind == b"b" else answer, args=(s,), daemon=True).start()
else:
    host, port, streams, seconds = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    counts = [0] * streams
    begin = time.monotonic() + float(sys.argv[6])
    def take(i):
        s = socket.create_connection((host, port)); s.sendall(b"b")
        while (now := time.monotonic()) < begin + seconds:
            got = len(s.recv(1 << 18))
            if now >= begin: counts[i] += got
    threads = [threading.Thread(target=take, args=(i,)) for i in range(streams)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(sum(counts) * 8 / seconds / 1e6 / streams)
P
cat >"$TMP/value.py" <<'P'
import json, sys
def find(it, key):
    if isinstance(it, dict):
        if isinstance(it.get(key), (int, float)): return it[key]
        it = list(it.values())
    if isinstance(it, list):
        for one in it:
            found = find(one, key)
            if found is not None: return found
try: print(find(json.load(sys.stdin), sys.argv[1]) or 0)
except ValueError: print(0)
P

# In a cell H and T are its namespaces.
lay() { # NUMBER RATE RTT QUEUE KIND
    H=tyche-h$$-$1 T=tyche-t$$-$1 started=()
    trap finish EXIT
    "$LAB" bottleneck "near$1" "far$1" --rate "$2" --round-trip "$3" --queue "$4" --kind "$5" \
        >"$TMP/path$1" & started+=($!)
    until [ -s "$TMP/path$1" ]; do kill -0 $! && sleep 0.1; done
    local name end address ecn=0
    [ "$5" = fq-codel-ecn ] && ecn=1
    for name in $H $T; do
        if [ $name = $H ]; then end=near$1 address=1; else end=far$1 address=2; fi
        ip netns add $name
        ip link set "$end" netns $name name e0
        ip -n $name addr add 10.93.1.$address/24 dev e0
        ip -n $name link set e0 up; ip -n $name link set lo up
        at $name sysctl -qw net.ipv4.tcp_ecn=$ecn net.ipv4.tcp_rmem="4096 131072 67108864" \
            net.ipv4.tcp_wmem="4096 131072 67108864"
    done
    inside $T python3 "$TMP/tcp.py" send 5201 >/dev/null 2>&1 & started+=($!)
    inside $T env TYCHE_RUNTIME_DIR="$TMP/run$1" "$TYCHE" serve --export vol1=mem:32M \
        --export vol2=mem:32M --link udp:0.0.0.0:8650 --link e0 >"$TMP/serve$1" 2>&1 &
    started+=($!)
    for _ in $(seq 50); do
        at $H "$TYCHE" discover --link udp:10.93.1.2:8650 >/dev/null 2>&1 && return
    done
    echo "the target of cell $1 is not heard" >&2
    return 1
}

finish() {
    kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    ip netns del $H; ip netns del $T
}

id() { printf '%08d-1111-4111-8111-111111111111' "$1"; }
# A session that reads, with twice as much under way as the path and its queue hold.
bulk() { # NUMBER RAMP SECONDS: Mbit/s
    local bytes
    bytes=$(at $H "$TYCHE" bench "vol$1" --link "$LINK" --host-id "$(id "$1")" --rw read \
        --bs 64k --queue-size "$DEPTH" --iodepth "$DEPTH" --ramp-time "$2" --runtime "$3" -o json 2>>"$ERRORS" |
        python3 "$TMP/value.py" bytes_per_s)
    python3 -c "print($bytes * 8 / 1e6)"
}
single() { # NUMBER: microseconds of a lone read of 4 KiB
    at $H "$TYCHE" bench "vol$1" --link "$LINK" --host-id "$(id "$1")" --rw randread --bs 4k \
        --iodepth 1 --runtime 6 -o json 2>>"$ERRORS" | python3 "$TMP/value.py" mean |
        python3 -c 'print(round(float(input()) / 1000))'
}
tcp() { # STREAMS RAMP SECONDS: Mbit/s of one
    at $H python3 "$TMP/tcp.py" take 10.93.1.2 5201 "$1" "$3" "$2"
}

cell() { # NUMBER LINK RATE RTT QUEUE KIND
    lay "$1" "${@:3}"
    LINK=e0 ERRORS=$TMP/errors$1
    [ "$2" = ethernet ] || LINK=udp:10.93.1.2:8650
    DEPTH=$(python3 -c "print(min(1024, max(16, $3 * 125 * ($4 + $5) * 2 // 65536)))")
    local n row alone streams two one lone
    alone=$(bulk 1 4 8)
    one=$(tcp 1 4 8)
    row=$(python3 -c "print(f'{$alone / $3:.2f} | {$one / $3:.2f}')")
    for n in $STREAMS; do
        tcp "$n" "$RAMP" "$RUNTIME" >"$TMP/tcp$1" & streams=$!
        one=$(bulk 1 "$RAMP" "$RUNTIME")
        wait $streams
        row="$row | $(python3 -c "print(f'{$one / max($(cat "$TMP/tcp$1"), 0.01):.2f}')")"
    done
    bulk 1 "$RAMP" "$RUNTIME" >"$TMP/one$1" & two=$!
    one=$(bulk 2 "$RAMP" "$RUNTIME")
    wait $two
    row="$row | $(python3 -c "
a, b = $one, $(cat "$TMP/one$1")
print(f'{max(a, b) / max(min(a, b), 0.01):.2f}')")"
    bulk 1 1 10 >/dev/null & two=$!
    sleep 4; lone=$(single 2); wait $two
    row="$row | $lone"
    tcp 1 1 10 >/dev/null & two=$!
    sleep 4; lone=$(single 2); wait $two
    echo "| $2 | $3 | $4 ms | $5 ms | $6 | $row | $lone |" | tee "$TMP/row$1"
}

number=1000
for rate in $RATES; do
    jobs=1
    [ "$rate" -le 100 ] && jobs=$(((AT_ONCE + 2) / 3))
    [ "$rate" -le 10 ] && jobs=$AT_ONCE
    for rtt in $RTTS; do for queue in $QUEUES; do for kind in $KINDS; do for link in $LINKS; do
        # Frames of Ethernet can't be marked: fq-codel drops them either way.
        [ "$link $kind" = "ethernet fq-codel-ecn" ] && continue
        number=$((number + 1))
        while [ "$(jobs -r | wc -l)" -ge "$jobs" ]; do wait -n || true; done
        (cell $number "$link" "$rate" "$rtt" "$queue" "$kind") ||
            echo "no result: $link, $rate Mbit/s, $rtt ms, $queue ms, $kind" >&2 &
    done; done; done; done
    while [ "$(jobs -r | wc -l)" -gt 0 ]; do wait -n || true; done
done

mkdir -p "$(dirname "$OUT")"
{
    echo "# Shares of a bottleneck"
    echo
    echo "Written by \`bench/congestion.sh\`, $(date -u +%Y-%m-%d), kernel $(uname -r)," \
        "$(nproc) processors, $RUNTIME s a run after" \
        "$RAMP s that do not count. A session reads 64 KiB at a depth of twice what the" \
        "path and its queue hold, through \`tyche-lab bottleneck\`; *alone* is its data by the" \
        "rate, as for TCP, *beside n* its rate by that of the mean of n TCP" \
        "streams with CUBIC, *two sessions* the faster by the slower. The last columns are the mean" \
        "time of single reads of 4 KiB of another host beside a bulk session, and beside a stream."
    echo
    echo "A cell is one run of each, and shares of flows with CUBIC differ from run to run by a half." \
        "fq_codel can't mark frames of Ethernet, and takes all of a pair of addresses for one flow. A" \
        "session has as many frames in flight as the receive buffer of its link holds: what a path and" \
        "its queue hold beyond that is left to others."
    echo
    echo "| link | Mbit/s | round trip | queue | kind | alone | TCP alone |$(for n in $STREAMS; do
        echo -n " beside $n |"; done) two sessions | 4 KiB beside Tyche, µs | beside TCP, µs |"
    echo "|---|---|---|---|---|---|---|$(for _ in $STREAMS; do echo -n "---|"; done)---|---|---|"
    cat "$TMP"/row*
} >"$OUT"
echo "wrote $OUT"
