#!/bin/bash
# Entry point of both Postgres servers of deploy/cluster.yaml: `postgres.sh primary|standby`.
set -euo pipefail
umask 077

# Postgres wants a key that is its own; whose a mounted file is, differs from machine to machine.
cp /run/tls/tls.key /tmp/tls.key
settings=(
    -c config_file=/etc/postgresql/postgresql.conf
    -c hba_file=/etc/postgresql/pg_hba.conf
    -c ssl=on
    -c ssl_cert_file=/run/tls/tls.crt
    -c ssl_key_file=/tmp/tls.key
)

if [ "$1" = primary ]; then
    exec docker-entrypoint.sh postgres "${settings[@]}"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    PGPASSWORD=$(cat /run/secrets/replication)
    export PGPASSWORD
    # What it is copied with is what it follows with.
    pg_basebackup --pgdata "$PGDATA" --write-recovery-conf --checkpoint fast --wal-method stream \
        --dbname "host=postgres-1 user=replication sslmode=verify-full sslrootcert=/run/tls/ca.crt application_name=standby"
    unset PGPASSWORD
fi
exec postgres "${settings[@]}"
