# A target in this guest, and programs of LVM that kill it when they are told to.

# Puts them where the target finds them first. Each reads once, in a file beside it, whether to kill
# the target before it works, after that, or in between: then it goes on without the target.
wrap() {
    local program
    # LVM is not to read the device that is made of its own volume.
    mkdir -p /tmp/wrap /etc/lvm
    echo 'devices { global_filter = [ "a|^/dev/loop0$|", "r|.*|" ] }' >/etc/lvm/lvm.conf
    for program in lvcreate lvremove lvrename; do
        cat >/tmp/wrap/$program <<'END'
#!/bin/bash
name=${0##*/}
moment=$(cat $0.kill 2>/dev/null)
rm -f $0.kill
kill_target() { kill -KILL $(pidof tyche-target); }
case $moment in
    before) kill_target ;;
    after) /usr/sbin/$name "$@"; kill_target ;;
    meanwhile) kill_target; sleep 2; exec /usr/sbin/$name "$@" ;;
    *) exec /usr/sbin/$name "$@" ;;
esac
END
        chmod 755 /tmp/wrap/$program
    done
    # The target has a name of its own: sessions are other processes of the same program.
    cp /tyche/tyche /tmp/wrap/tyche-target
}

# Runs a command of tyche; again if the target has not answered for longer than one waits for a
# report: an emulated machine may stand still.
ask() {
    local code count
    for count in {1..5}; do
        code=0
        tyche "$@" >/tmp/asked.$$ 2>/tmp/asked.err.$$ || code=$?
        [ $code -eq 6 ] && grep -q 'does not answer within' /tmp/asked.err.$$ || break
        sleep 3
    done
    cat /tmp/asked.$$
    [ $code -eq 0 ] || cat /tmp/asked.err.$$
    return $code
}

# Starts the target, by another program if one is given, and waits until it serves.
serve() {
    rm -f /tmp/said
    PATH=/tmp/wrap:$PATH setsid "$@" /tmp/wrap/tyche-target serve --config /tmp/target.toml \
        </dev/null >/tmp/said 2>>/tmp/target.log &
    for count in {1..600}; do
        grep -q '^tyche: serving ' /tmp/said && return
        sleep 0.1
    done
    tail -n 50 /tmp/target.log
    return 1
}

# Kills the target if it runs, and waits until it is gone.
kill_target() {
    for count in {1..600}; do
        pidof tyche-target >/dev/null || return 0
        kill -KILL $(pidof tyche-target) 2>/dev/null || true
        sleep 0.1
    done
    return 1
}

# Has a Debian that has no LVM use that of the machine outside.
borrow_lvm() {
    local name loader='/host/lib64/ld-linux-x86-64.so.2 --library-path /host/lib/x86_64-linux-gnu'
    for name in vgcreate lvcreate lvs lvchange lvextend lvremove lvrename vgmknodes; do
        printf '#!/bin/sh\nexec %s /host/sbin/lvm %s "$@"\n' "$loader" $name >/usr/sbin/$name
        chmod 755 /usr/sbin/$name
    done
    printf '#!/bin/sh\nexec %s /host/sbin/pdata_tools thin_check "$@"\n' "$loader" >/usr/sbin/thin_check
    chmod 755 /usr/sbin/thin_check
    cp /host/lib/udev/rules.d/56-lvm.rules /etc/udev/rules.d/
    mkdir -p /etc/lvm/backup /etc/lvm/archive
    udevadm control --reload
}
