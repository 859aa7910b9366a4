#!/busybox sh
# Runs the scripts that it is told the numbers of, on the second serial line, all at the same time.
# A script and its output are files outside, so that they are still there when the guest is not;
# the line says only that it ended, and how.
export PATH=/tyche:/usr/sbin:/usr/bin LC_ALL=C HOME=/root
exec 3<>/dev/ttyS1
stty raw -echo <&3
echo ready >&3
while read -r job <&3; do
    (
        bash -eu -o pipefail /share/$job.sh </dev/null >/share/$job.out 2>&1
        echo "$job $?" >&3
    ) &
done
