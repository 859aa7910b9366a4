#!/busybox sh
# The first program of a guest. It makes the programs of the machine outside its own, and then
# leaves the guest to init, which keeps the agent running and collects what it leaves behind.
export PATH=/tyche:/usr/sbin:/usr/bin
/busybox mkdir -p /proc /sys /dev /run /tmp /var/tmp /root /mnt /etc /usr /lib/modules /share /tyche
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
/busybox mount -t devtmpfs dev /dev
for module in /boot/*.ko; do /busybox insmod $module; done
shared() { /busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,$3 $1 $2; }
shared usr /usr ro,cache=loose
shared modules /lib/modules ro,cache=loose
shared tyche /tyche ro,cache=loose
shared share /share rw,cache=none
for name in bin sbin lib64; do /busybox ln -s usr/$name /$name; done
for path in /usr/lib/*; do [ -e /lib/${path##*/} ] || /busybox ln -s $path /lib/; done
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
# A Debian with an init of its own.
if grep -q debian /proc/cmdline; then
    modprobe -a virtio_blk crc32c_generic ext4
    until [ -b /dev/vda ]; do /busybox sleep 0.1; done
    /busybox mkdir /debian
    /busybox mount -t ext4 /dev/vda /debian
    /busybox cp /busybox /agent /debian/
    for dir in share lib/modules dev; do
        /busybox mkdir -p /debian/$dir
        /busybox mount --move /$dir /debian/$dir
    done
    /busybox mkdir /debian/host
    /busybox mount --move /usr /debian/host
    exec /busybox switch_root /debian /usr/lib/systemd/systemd
fi
ln -s /proc/self/mounts /etc/mtab
ip link set lo up
exec /busybox init
