# A first day with Tyche: two machines, from the package to its removal, by what README, guide and
# manual pages say. Each command must do what the line after it says.
. /share/machines.sh
make_store
cp /share/package-1.deb /var/tmp/tyche_0.1.0_amd64.deb
rm -f $TRANSCRIPT
cat >$TRANSCRIPT <<'END'
# A first day

Two machines, `target` and `host`, joined by two cables: from the package to its removal, with what
the commands print. A test types all of it in a Debian (`cargo xtask vm first_day`).
END

part Install
tell 'The package is the same for both machines.'
host 'cd /var/tmp && apt install ./tyche_0.1.0_amd64.deb 2>/dev/null | tail -n 1'
tell 'A warning ends it with 1: the machines of the test are emulated.'
fails 1 host 'tyche doctor'
says ' 0 errors'
target 'tyche key generate'
says '^tyche_'
host 'tyche key generate'
says '^tyche_'
HOST_KEY=$(tyche key show)
tell 'The host is to give the target commands as well: an admin has a key of its own.'
host 'tyche key generate /etc/tyche/admin.key'
says '^tyche_'
ADMIN_KEY=$(tyche key show /etc/tyche/admin.key)

part 'A target with a pool'
tell 'The target gets a file, and no export so far: these come by commands.'
target "cat >/etc/tyche/target.toml <<'END'
name = \"store\"
link = [\"eth1\"]
key = \"/etc/tyche/key\"
control = \"tcp:192.0.2.1:8652\"

[[admin]]
name = \"ops\"
key = \"$ADMIN_KEY\"

[[host]]
name = \"host1\"
key = \"$HOST_KEY\"

[[pool]]
name = \"fast\"
path = \"/srv/vols/tyche\"

[[pool]]
name = \"small\"
path = \"dir:/srv/small/tyche\"
END"
tell 'A file with a mistake is refused, with the remedy.'
fails 8 target 'tyche serve --check --config /etc/tyche/target.toml'
says 'write "dir:/srv/vols/tyche"'
target "sed -i 's,\"/srv/vols/tyche\",\"dir:/srv/vols/tyche\",' /etc/tyche/target.toml"
target 'tyche serve --check --config /etc/tyche/target.toml'
says 'is valid'
target 'systemctl enable --now tyche-target'
target 'tyche export add vm1 --pool fast --size 64M'
says 'store exports vm1 \(64.0 MiB\)'
target 'tyche list'
says 'vm1'

part 'Connect, and use it'
host 'tyche discover'
says 'store.*vm1|vm1.*store'
tell 'The first time, the host asks whether the key is that of the target: `tyche key fingerprint` shows it there.'
target 'tyche key fingerprint'
FINGERPRINT=$(cat $SAID)
host "echo yes | script -qec 'tyche connect store/vm1 --link eth1 --target-key ask' /dev/null"
grep -Fq "$FINGERPRINT" $SAID
says '/dev/nbd'
until_at host 'tyche list | grep "vm1.*live"'
host 'tyche key known'
says store
tell 'It is to be there after a restart as well, so it gets a line in tychetab, and a unit.'
host 'tyche disconnect store/vm1'
host 'echo "store/vm1 eth1" >>/etc/tyche/tychetab; systemctl daemon-reload'
host 'systemctl start tyche@$(systemd-escape store/vm1)'
host 'systemctl status tyche@$(systemd-escape store/vm1) | head -n 5'
says 'active \(running\)'
host 'ls /dev/disk/by-id/'
says tyche-
DEVICE=/dev/disk/by-id/$(grep tyche- $SAID | head -n 1)
host "mkfs.ext4 -q $DEVICE && mount $DEVICE /mnt"
host 'cp -r /usr/share/doc/tyche /mnt/ && sync'

part 'From elsewhere, and what there is to see'
tell 'Commands for the target can be given at another machine: it is known there by its name.'
host 'tyche export list --at store@192.0.2.1 --key /etc/tyche/admin.key'
says 'vm1 .* any  *host1'
host 'tyche hosts --at store@192.0.2.1 --key /etc/tyche/admin.key'
says 'host1 *vm1 \(writes\)'
says_not ' 0 µs'
tell 'Metrics for Prometheus, and a page for people, are at port 9652 of the machine itself.'
host 'systemctl start tyche-exporter'
page() { exec 3<>/dev/tcp/127.0.0.1/9652 && printf "GET $1 HTTP/1.0\r\n\r\n" >&3 && cat <&3; exec 3>&-; }
page / >/run/page
grep -q 'store/vm1' /run/page
page /metrics >/run/page
grep -q '^tyche_session_state{.*vm1' /run/page

part 'More room'
target 'tyche export resize vm1 96M'
says '96.0 MiB now, 64.0 MiB before'
host "resize2fs $DEVICE 2>&1"
says 'is now 98304 \(1k\) blocks'
host 'df -h /mnt'

part 'A snapshot, and a copy'
host 'fsfreeze --freeze /mnt'
target 'tyche export snapshot vm1 vm1-monday'
says 'a snapshot of vm1; writes waited for'
host 'fsfreeze --unfreeze /mnt'
host 'rm -r /mnt/tyche && sync'
target 'tyche export clone vm1-monday copy'
target 'tyche export rename copy vm2'
says 'copy of store is vm2 now'
target 'tyche export set vm2 iops=5000 allow=host1'
target 'tyche export list --tree'
says 'clone of vm1-monday'
host 'tyche connect store/vm2 --link eth1'
says '/dev/nbd'
COPY=$(grep "^/dev/" $SAID)
host "mkdir -p /copy && mount $COPY /copy && ls /copy/tyche"
says CHANGELOG
fails 7 target 'tyche export remove vm2 --delete'
says 'is connected by host1'
fails 7 target 'tyche export rename vm2 other'
says 'disconnect it there first'

part 'A pool that is full'
tell 'More may be promised than there is.'
target 'tyche export add big --pool small --size 64M'
says 'pool small has .*, and its exports have 64.0 MiB together'
host 'tyche connect store/big --link eth1'
BIG=$(grep "^/dev/" $SAID)
tell 'The kernel reports each error of an nbd device as EIO; `tyche list` says what it was.'
fails 1 host "dd if=/dev/zero of=$BIG bs=1M oflag=direct status=none"
says 'Input/output error|No space left on device'
target 'tyche list'
says 'pool small .* full'
host 'tyche list'
says 'big.*live'
says 'failed requests: write no space'
host 'tyche disconnect store/big'
target 'tyche export remove big --delete'

part 'Links come and go'
tell 'Another cable, at both ends. Files are written all the time.'
(while [ ! -e /run/stop ]; do
    dd if=/dev/urandom of=/mnt/load bs=64k count=1 conv=fsync status=none || touch /run/failed
    touch /run/round; sleep 1
done) &
LOAD=$!
# Waits until another round has been written.
more() { rm -f /run/round; until_at host '[ -e /run/round ]'; rm -f /run/round; until_at host '[ -e /run/round ]'; }
tell 'The MTU of the second one is smaller at the target: less than the host sends gets through.'
target 'ip link set eth2 mtu 1500'
target 'tyche link add store eth2'
host 'tyche link add store/vm1 eth2'
more
until_at host 'tyche list | grep "eth2 (1514 B frames"'
host 'tyche list'
says 'vm1.*live.*eth1'
says '^ .*eth2 \(1514 B frames, though its MTU is 9000\)'
target 'ip link set eth2 mtu 9000'
tell 'A link that a disk needs is not taken from it unawares.'
fails 7 target 'tyche link del store eth1'
says 'eth1 is the only link of host1 \(vm2\)'
host 'tyche link add store/vm2 eth2'
until_at host 'tyche stats store/vm2 | grep "link eth2.*live"'
target 'tyche link del store eth1'
host 'tyche link del store/vm1 eth1'
more
target 'tyche link add store eth1'
host 'tyche link add store/vm1 eth1'
more

part 'A host is shut out'
host 'umount /copy'
target 'tyche export evict vm2 host1'
says 'nothing of it is left there'
until_at host 'tyche list | grep "does not let this host in"'
host 'tyche disconnect --force store/vm2'
fails 7 host 'tyche connect store/vm2 --link eth1'
target 'tyche export allow vm2 host1'
host 'tyche connect store/vm2 --link eth1 --ctrl-loss-tmo 10'

part 'Another key for the target'
target 'tyche key generate /etc/tyche/key.next'
target "sed -i 's,^key = \"/etc/tyche/key\"\$,key = [\"/etc/tyche/key\"\\, \"/etc/tyche/key.next\"],' /etc/tyche/target.toml && systemctl reload tyche-target"
NEXT=$(nsenter --mount=/run/machine/store tyche key fingerprint --file /etc/tyche/key.next)
until_at host "tyche key known | grep -F '$NEXT'"
host 'tyche key known'
target "sed -i 's,^key = .*next.*,key = \"/etc/tyche/key.next\",' /etc/tyche/target.toml && systemctl reload tyche-target"
more
host 'tyche list --check'

part 'The target is lost'
target 'systemctl stop tyche-target'
until_at host "tyche list | grep vm2 | grep failed"
host 'tyche list'
says 'vm1.*lost|lost'
tell 'What is written waits. vm2 was to wait for 10 s only, and has failed: it is tried again.'
target 'systemctl start tyche-target'
more
until_live
host 'tyche list'
says 'vm1.*live'
says 'vm2.*live'
says_not 'failed requests'

part 'Upgrade'
cp /share/package-2.deb /var/tmp/tyche_0.1.0_amd64.deb
host 'cd /var/tmp && apt install --reinstall ./tyche_0.1.0_amd64.deb 2>/dev/null | tail -n 1'
more
host 'tyche reload --all'
more
until_live
for pid in $(pidof tyche @tyche); do cmp /proc/$pid/exe /usr/sbin/tyche; done

part Remove
touch /run/stop; wait $LOAD; [ ! -e /run/failed ]
host 'tyche disconnect store/vm2'
tell 'The package is not removed while one of its disks is in use.'
fails 100 host 'apt remove --yes tyche 2>&1 | grep ^tyche:; exit ${PIPESTATUS[0]}'
says 'unmount'
host 'umount /mnt'
host 'systemctl stop tyche@$(systemd-escape store/vm1)'
target 'tyche hosts'
target 'tyche export remove vm2 --delete'
target 'tyche export remove vm1 --delete'
target 'tyche export remove vm1-monday --delete'
target 'ls /srv/vols/tyche'
[ ! -s $SAID ]
target 'systemctl disable --now tyche-target'
host 'apt purge --yes tyche 2>/dev/null | tail -n 1'
[ ! -e /etc/tyche ] && [ ! -e /var/lib/tyche ]
