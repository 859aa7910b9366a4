# Two machines in one guest, and how a transcript of what is typed there is written. `host` is the
# guest itself; `store` has a network, and /etc/tyche, /run/tyche and /var/lib/tyche of its own. Two
# cables join them: eth1, which has addresses as well, and eth2 at both.
TRANSCRIPT=/share/first-day.md
# What the last command has printed, and the exit code that the next one is to have.
SAID=/run/said
WANTED=0

# Makes the second machine.
make_store() {
    local dir
    ip netns add store
    for link in eth1 eth2; do
        ip link add $link mtu 9000 type veth peer name $link mtu 9000 netns store
        ip link set $link up
        ip -netns store link set $link up
    done
    ip address add 192.0.2.2/24 dev eth1
    ip -netns store address add 192.0.2.1/24 dev eth1
    mkdir -p /run/machine /srv/vols /run/systemd/system/tyche-target.service.d
    mount --bind --make-private /run/machine /run/machine
    touch /run/machine/store
    # A file system for disks, as a machine that has some would have one.
    truncate -s 1G /srv/vols.img
    /host/lib64/ld-linux-x86-64.so.2 --library-path /host/lib/x86_64-linux-gnu \
        /host/sbin/mkfs.xfs -q /srv/vols.img
    mount -o loop /srv/vols.img /srv/vols
    mkdir /srv/vols/tyche
    # And one with little room.
    truncate -s 32M /srv/small.img
    mkfs.ext4 -q /srv/small.img
    mkdir /srv/small
    mount -o loop /srv/small.img /srv/small
    mkdir /srv/small/tyche
    for dir in etc/tyche run/tyche var/lib/tyche; do mkdir -p /$dir /srv/store/$dir; done
    unshare --mount=/run/machine/store --propagation slave sh -c \
        'for dir in etc/tyche run/tyche var/lib/tyche; do mount --bind /srv/store/$dir /$dir; done'
    cat >/run/systemd/system/tyche-target.service.d/machine.conf <<'END'
[Unit]
AssertPathExists=
[Service]
NetworkNamespacePath=/run/netns/store
BindPaths=/srv/store/etc/tyche:/etc/tyche /srv/store/run/tyche:/run/tyche
BindPaths=/srv/store/var/lib/tyche:/var/lib/tyche
END
}

# A heading, and what a reader is to know.
part() { printf '\n## %s\n' "$*" >>$TRANSCRIPT; echo "== $*"; }
tell() { printf '\n%s\n' "$*" >>$TRANSCRIPT; }

# Runs a command at a machine as root would, and notes it with what it prints.
target() { at store nsenter --mount=/run/machine/store --net=/run/netns/store bash -c "$1"; note "target# $1"; }
host() { at host bash -c "$1"; note "host# $1"; }

at() {
    local machine=$1 code count
    shift
    for count in {1..5}; do
        code=0
        timeout 300 "$@" </dev/null >$SAID 2>&1 || code=$?
        # An emulated machine may stand still for longer than a command waits for a daemon.
        [ $code -eq 6 ] && grep -q 'does not answer within' $SAID || break
        sleep 5
    done
    if [ $code -ne $WANTED ]; then
        echo "at $machine: ${*: -1}: exit code $code, not $WANTED:"
        cat $SAID
        exit 1
    fi
    [ $code -eq 0 ] || echo "exit code $code" >>$SAID
    WANTED=0
}

# The next command fails with this code.
fails() { WANTED=$1; shift; "$@"; }

note() {
    echo "$1"
    { printf '\n```\n%s\n' "$1"; cut -c 1-160 $SAID | tr -d '\r'; printf '```\n'; } >>$TRANSCRIPT
}

# The last command has printed a line like that.
says() {
    grep -Eq -- "$1" $SAID || { echo "no line is like $1:"; cat $SAID; exit 1; }
}

# The last command has printed no line like that.
says_not() {
    if grep -E -- "$1" $SAID; then echo "a line is like $1"; exit 1; fi
}

# Waits until a command at a machine succeeds; it is not noted.
until_at() {
    local machine=$1 count
    for count in {1..300}; do
        case $machine in
            target) nsenter --mount=/run/machine/store --net=/run/netns/store bash -c "$2" ;;
            host) bash -c "$2" ;;
        esac </dev/null >$SAID 2>&1 && return
        sleep 0.2
    done
    echo "not within a minute: $2"
    cat $SAID
    exit 1
}

# Waits until both disks are there, and all is well. One whose daemon makes room for its successor
# is not listed for a moment.
until_live() {
    until_at host 'for disk in vm1 vm2; do tyche list | grep "$disk.* live" || exit; done; tyche list --check'
}
