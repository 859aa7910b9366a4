# PostgreSQL in a guest, as functions: its data directory on a file system at /mnt, and outside of
# the disk, in /run, what its clients were told.
PG=/pg/usr/lib/postgresql/15/bin
DATA=/mnt/data
# The numbers of a run of pgbench, by client: in a table, and in the log of acknowledgements.
ACKS=/run/acks
export LD_LIBRARY_PATH=/pg/usr/lib/x86_64-linux-gnu:/pg/lib/x86_64-linux-gnu
export PGHOST=/tmp PGUSER=pg PGDATABASE=postgres TZ=GMT

# Runs a command, and shows what it prints if it fails.
quietly() { "$@" >/run/printed 2>&1 || { cat /run/printed; return 1; }; }

# Runs a program of PostgreSQL by its user, who is not root.
pg() { local program=$1; shift; setpriv --reuid 5432 --regid 5432 --clear-groups $PG/$program "$@"; }

install_postgres() {
    mkdir -p /pg $ACKS
    tar -xf /share/postgres.tar -C /pg
    echo 'pg:x:5432:5432::/tmp:/bin/sh' >>/etc/passwd
    chown 5432 $ACKS /run
    # Every number of a client is a transaction of its own, beside those of a bank.
    cat >/run/load.sql <<'END'
\set n :n + 1
\set aid random(1, 100000)
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, now());
INSERT INTO acks VALUES (:run, :client_id, :n);
COMMIT;
END
}

# Makes a database on the file system. Few buffers and frequent checkpoints: the disk has work.
make_database() {
    install -d -o 5432 -m 700 $DATA
    quietly pg initdb --pgdata=$DATA --data-checksums --wal-segsize=4 --locale=C --encoding=UTF8
    cat >>$DATA/postgresql.conf <<'END'
listen_addresses = ''
unix_socket_directories = '/tmp'
timezone = 'GMT'
log_timezone = 'GMT'
jit = off
shared_buffers = 4MB
checkpoint_timeout = 30s
min_wal_size = 16MB
max_wal_size = 32MB
END
    start
    quietly pg pgbench --initialize --quiet --scale=1
    pg psql -q -c 'CREATE TABLE acks (run int, client int, n int)' -c 'CREATE EXTENSION amcheck'
}

start() { quietly pg pg_ctl start --pgdata=$DATA --wait --timeout=300 --log=/run/postgres.log; }
stop() { quietly pg pg_ctl stop --pgdata=$DATA --wait --timeout=300 --mode=fast; }

# Runs transactions until there is a file /run/end.
load() {
    local run=0
    until [ -e /run/end ]; do
        run=$((run + 1))
        pg pgbench --no-vacuum --client=4 --jobs=1 --protocol=prepared --time=5 \
            --define=run=$run --define=n=0 --file=/run/load.sql --log --log-prefix=$ACKS/$run \
            2>/run/pgbench.err >/run/pgbench.out || { cat /run/pgbench.err; return 1; }
    done
    echo "pgbench: $run runs"
}

# Prints run, client and number of the last acknowledgement before a moment, in microseconds.
acknowledged() {
    /busybox awk -v before=$1 '$3 != "failed" && $5 * 1000000 + $6 < before {
        run = FILENAME; sub(".*/", "", run); sub("[.].*", "", run); ++count[run "," $1]
    } END { for (key in count) print key "," count[key] }' $ACKS/*
}

# Compares the database with what was acknowledged before a moment.
compare() {
    acknowledged $1 >/run/acknowledged.csv
    pg psql --quiet --no-align --tuples-only --set=ON_ERROR_STOP=1 >/run/compared <<'END'
CREATE TEMP TABLE acknowledged (run int, client int, count int);
\copy acknowledged FROM /run/acknowledged.csv CSV
CREATE TEMP VIEW kept AS
    SELECT run, client, count(*) AS count, max(n) AS last FROM acks GROUP BY run, client;
SELECT 'acknowledged ' || coalesce(sum(count), 0) FROM acknowledged;
SELECT 'kept ' || count(*) FROM acks;
SELECT 'lost ' || coalesce(sum(greatest(0, a.count - coalesce(k.last, 0))), 0)
    FROM acknowledged a LEFT JOIN kept k USING (run, client);
SELECT 'missing in between ' || coalesce(sum(last - count), 0) FROM kept;
SELECT 'different sums ' || count(DISTINCT sum) - 1 FROM (
    SELECT sum(abalance) FROM pgbench_accounts UNION ALL SELECT sum(tbalance) FROM pgbench_tellers
    UNION ALL SELECT sum(bbalance) FROM pgbench_branches
    UNION ALL SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS sums;
END
    cat /run/compared
    grep -q '^acknowledged [1-9]' /run/compared
    for no in lost 'missing in between' 'different sums'; do grep -qx "$no 0" /run/compared; done
}

# Checks the database on a file system that is mounted: what was acknowledged before a moment is
# there, tables and indexes are in order, all can be read, and no checksum is wrong.
check_database() {
    start
    compare $1
    pg pg_amcheck --heapallindexed --database=postgres --exclude-schema=information_schema
    pg pg_dump >/run/dump.sql
    [ $(wc -l </run/dump.sql) -gt 100000 ]
    rm /run/dump.sql
    stop
    pg pg_checksums --check --pgdata=$DATA | sed -n 's/^Bad checksums: */bad checksums /p'
}
