#!/bin/bash
# Shares of a bottleneck: one session of Tyche, reading in bulk, beside TCP streams with CUBIC.
#
#   bench/congestion.sh [--tyche PROGRAM] [--rates "10 100 500"] [--rtts "1 20 100"]
#                       [--queues "10 100"] [--kinds "drop fq_codel ecn"] [--streams "1 4"]
#                       [--links "udp ethernet"] [--runtime SECONDS] [--out FILE]
#
# Mbit/s, ms, ms. Needs root, ip, tc, python3. Everything is inside of this machine: the host, the
# target, and a bridge between them, in three namespaces. The bottleneck is a token bucket where
# the bridge sends to the host, so reads and TCP meet in one queue.
#
#   host ──netem── bridge ──netem── target       round trips: half of the time on each side
#          <─ tbf
#
# A kernel without netem has round trips of 0 only, and one without fq_codel no such queues: those
# cells are left out, and said. Each cell has these runs: alone, beside each number of streams, two
# sessions, and single reads of 4 KiB beside a bulk session and beside a TCP stream.
set -euo pipefail

TYCHE=target/release/tyche RATES="10 100 500" RTTS="1 20 100" QUEUES="10 100"
KINDS="drop fq_codel ecn" STREAMS="1 4" LINKS="udp ethernet" RUNTIME=30
OUT=docs/measurements/congestion.md
while [ $# -gt 0 ]; do
    case $1 in
        --tyche) TYCHE=$2 ;; --rates) RATES=$2 ;; --rtts) RTTS=$2 ;; --queues) QUEUES=$2 ;;
        --kinds) KINDS=$2 ;; --streams) STREAMS=$2 ;; --links) LINKS=$2 ;;
        --runtime) RUNTIME=$2 ;; --out) OUT=$2 ;;
        *) sed -n '2,20p' "$0"; exit 2 ;;
    esac
    shift 2
done
TYCHE=$(realpath "$TYCHE")
H=tyche-h$$ B=tyche-b$$ T=tyche-t$$
TMP=$(mktemp -d)
export TYCHE_STATE_DIR=$TMP/state TYCHE_LOG_DIR=$TMP/log
started=()

finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for name in $H $B $T; do ip netns del $name 2>/dev/null || true; done
    rm -rf "$TMP"
}
trap finish EXIT

at() { local name=$1; shift; nsenter --net=/var/run/netns/"$name" "$@"; }

lay() {
    for name in $H $B $T; do ip netns add $name; done
    ip link add e0 netns $H type veth peer name host netns $B
    ip link add e0 netns $T type veth peer name target netns $B
    ip -n $B link add br0 type bridge
    for end in host target; do ip -n $B link set $end master br0 up; done
    ip -n $B link set br0 up
    ip -n $H addr add 10.93.1.1/24 dev e0; ip -n $T addr add 10.93.1.2/24 dev e0
    for name in $H $T; do ip -n $name link set e0 up; ip -n $name link set lo up; done
}

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
    end = time.monotonic() + seconds
    def take(i):
        s = socket.create_connection((host, port)); s.sendall(b"b")
        while time.monotonic() < end: counts[i] += len(s.recv(1 << 18))
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

shape() { # RATE RTT QUEUE KIND; false if the kernel lacks something
    local limit=$(($1 * 1000000 / 8 * $3 / 1000)) burst=$(($1 * 1000000 / 8 / 500))
    [ $burst -ge 3028 ] || burst=3028
    [ $limit -ge 6056 ] || limit=6056
    at $B tc qdisc del dev host root 2>/dev/null || true
    at $B tc qdisc add dev host root handle 1: tbf rate "$1"mbit burst $burst limit $((limit + burst))
    case $4 in
        drop) ;;
        fq_codel) at $B tc qdisc add dev host parent 1:1 fq_codel noecn 2>/dev/null || return 1 ;;
        ecn) at $B tc qdisc add dev host parent 1:1 fq_codel ecn 2>/dev/null || return 1 ;;
    esac
    for name in $H $T; do
        at $name tc qdisc del dev e0 root 2>/dev/null || true
        [ "$2" = 0 ] || at $name tc qdisc add dev e0 root netem limit 100000 \
            delay "$(($2 * 500))us" 2>/dev/null || return 1
    done
    local ecn=0; [ "$4" = ecn ] && ecn=1
    for name in $H $T; do at $name sysctl -qw net.ipv4.tcp_ecn=$ecn; done
}

id() { printf '%08d-1111-4111-8111-111111111111' "$1"; }
bulk() { # LINK NUMBER SECONDS: Mbit/s of a session that reads
    local bytes
    bytes=$(at $H "$TYCHE" bench "vol$2" --link "$1" --qdisc --host-id "$(id "$2")" --rw read \
        --bs 256k --iodepth 16 --runtime "$3" -o json 2>>"$TMP/errors" |
        python3 "$TMP/value.py" bytes_per_s)
    python3 -c "print($bytes * 8 / 1e6)"
}
single() { # LINK NUMBER: microseconds of a lone read of 4 KiB
    at $H "$TYCHE" bench "vol$2" --link "$1" --qdisc --host-id "$(id "$2")" --rw randread --bs 4k \
        --iodepth 1 --runtime 5 -o json 2>>"$TMP/errors" | python3 "$TMP/value.py" mean |
        python3 -c 'print(round(float(input()) / 1000))'
}
tcp() { at $H python3 "$TMP/tcp.py" take 10.93.1.2 5201 "$1" "$2"; }

cell() { # LINK RATE
    local link=$1 n row alone streams two one lone
    alone=$(bulk "$link" 1 "$RUNTIME")
    row=$(python3 -c "print(f'{$alone / $2:.2f}')")
    for n in $STREAMS; do
        tcp "$n" "$RUNTIME" >"$TMP/tcp" & streams=$!
        one=$(bulk "$link" 1 "$RUNTIME")
        wait $streams
        row="$row | $(python3 -c "print(f'{$one / max($(cat "$TMP/tcp"), 0.01):.2f}')")"
    done
    bulk "$link" 1 "$RUNTIME" >"$TMP/one" & two=$!
    one=$(bulk "$link" 2 "$RUNTIME")
    wait $two
    row="$row | $(python3 -c "
a, b = $one, $(cat "$TMP/one")
print(f'{max(a, b) / max(min(a, b), 0.01):.2f}')")"
    bulk "$link" 1 10 >/dev/null & two=$!
    sleep 3; lone=$(single "$link" 2); wait $two
    row="$row | $lone"
    tcp 1 10 >/dev/null & two=$!
    sleep 3; lone=$(single "$link" 2); wait $two
    echo "$row | $lone"
}

lay
inside() { exec nsenter --net=/var/run/netns/"$1" "${@:2}"; }
inside $T python3 "$TMP/tcp.py" send 5201 >/dev/null 2>&1 & started+=($!)
inside $T "$TYCHE" serve --export vol1=mem:256M --export vol2=mem:256M --link udp:0.0.0.0:8650 \
    --link e0 --qdisc >"$TMP/serve" 2>&1 & started+=($!)
for _ in $(seq 50); do
    at $H "$TYCHE" discover --link udp:10.93.1.2:8650 >/dev/null 2>&1 && break
    sleep 0.2
done

table=$TMP/table
{
    echo "| link | Mbit/s | round trip | queue | kind | alone |$(for n in $STREAMS; do
        echo -n " beside $n |"; done) two sessions | 4 KiB beside Tyche, µs | beside TCP, µs |"
    echo "|---|---|---|---|---|---|$(for _ in $STREAMS; do echo -n "---|"; done)---|---|---|"
} >"$table"
left_out=0
for rate in $RATES; do for rtt in $RTTS; do for queue in $QUEUES; do for kind in $KINDS; do
    if ! shape "$rate" "$rtt" "$queue" "$kind"; then
        echo "left out: $rate Mbit/s, $rtt ms, queue $queue ms, $kind" >&2
        left_out=$((left_out + 1))
        continue
    fi
    for link in $LINKS; do
        address=e0
        [ "$link" = ethernet ] || address=udp:10.93.1.2:8650
        echo "| $link | $rate | $rtt ms | $queue ms | $kind | $(cell $address "$rate") |" |
            tee -a "$table"
    done
done; done; done; done

mkdir -p "$(dirname "$OUT")"
{
    echo "# Shares of a bottleneck"
    echo
    echo "Written by \`bench/congestion.sh\`, $(date -u +%Y-%m-%d), kernel $(uname -r)," \
        "$(nproc) processors, $RUNTIME s a run. A session reads 256 KiB at depth 16 through a token" \
        "bucket; *alone* is its part of the rate, *beside n* its rate by that of the mean of n TCP" \
        "streams with CUBIC, *two sessions* the faster by the slower. The last columns are the mean" \
        "time of single reads of 4 KiB of another host beside a bulk session, and beside a stream."
    echo
    [ $left_out = 0 ] || { echo "$left_out cells were left out: this kernel lacks netem or" \
        "fq_codel."; echo; }
    cat "$table"
} >"$OUT"
echo "wrote $OUT"
