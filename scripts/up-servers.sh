# shellcheck shell=bash
# The servers of the local stack as processes; sourced by scripts/up. Each
# function starts one if it does not run yet, and returns when it is ready.

up_postgres() {
  is_up postgres && return
  free_port PostgreSQL "$UP_POSTGRES" UP_POSTGRES
  say "starting PostgreSQL"
  local data=$UP_DATA/postgres bin as_user=()
  bin=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1)")
  # It refuses to run as root: then it runs as the user of its package.
  [ "$(id -u)" != 0 ] || as_user=(setpriv --reuid postgres --regid postgres --init-groups --)
  if [ ! -e "$data/PG_VERSION" ]; then
    mkdir -p "$data"
    [ "$(id -u)" != 0 ] || chown postgres: "$data"
    "${as_user[@]}" test -w "$data" || die "user postgres cannot reach $data: set MALOTE_DATA to a folder that it can"
    "${as_user[@]}" "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$UP_DATA/initdb.log"
  fi
  start postgres "${as_user[@]}" "$bin/postgres" -D "$data" -p "$UP_POSTGRES" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300
  wait_for postgres "$bin/pg_isready" -q -h 127.0.0.1 -p "$UP_POSTGRES"
}

up_databases() {
  psql -X -q -v ON_ERROR_STOP=1 "postgres://postgres@127.0.0.1:$UP_POSTGRES/postgres" -f dev/postgres/databases.sql
}

up_redis() {
  is_up redis && return
  free_port Redis "$UP_REDIS" UP_REDIS
  say "starting Redis"
  mkdir -p "$UP_DATA/redis"
  start redis redis-server --bind 127.0.0.1 --port "$UP_REDIS" --dir "$UP_DATA/redis" --appendonly yes --save ''
  wait_for redis redis-cli -p "$UP_REDIS" --raw -e PING
}

up_kafka() {
  is_up kafka && return
  local libs=${MALOTE_KAFKA_LIBS:-dev/kafka/target/libs} config=$UP_DATA/kafka.properties
  [ -d "$libs" ] || die "Kafka cannot be had here, and the services need it; make demo runs without"
  free_port Kafka "$UP_KAFKA" UP_KAFKA
  say "starting Kafka"
  sed "s|{port}|$UP_KAFKA|; s|{controller}|$((UP_KAFKA + 1))|; s|{data}|$UP_DATA/kafka|" \
    crates/malote-testkit/src/servers/kafka.properties >"$config"
  local java=(java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$libs/*")
  [ -e "$UP_DATA/kafka/meta.properties" ] ||
    "${java[@]}" kafka.tools.StorageTool format --cluster-id bWFsb3RlLXRlc3Qtbm9kZQ --config "$config" >>"$UP_DATA/kafka.log" 2>&1
  start kafka "${java[@]}" kafka.Kafka "$config"
  wait_for kafka kafka_answers "$UP_KAFKA"
}

# Asks for ApiVersions, the first question of every client, and checks the answer
# for its correlation id (2a) and no error.
kafka_answers() (
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  printf '\0\0\0\12\0\22\0\0\0\0\0\52\377\377' >&3
  [ "$(timeout 2 head -c 10 <&3 | od -An -tx1 -j 4 | tr -d ' \n')" = 0000002a0000 ]
)

# Collector and Jaeger. Fails, with the reason said, where they cannot be built.
up_tracing() {
  is_up jaeger && is_up otelcol && return
  [ "${UP_TRACING:-on}" != off ] || { say "tracing is switched off"; return 1; }
  local bin
  bin=$(target_dir)/up/bin
  mkdir -p "$bin"
  build_go jaeger github.com/jaegertracing/jaeger/cmd/jaeger && build_go otelcol . || return 1
  stop otelcol
  stop jaeger
  say "starting Jaeger and the OpenTelemetry collector"
  start jaeger env MALOTE_JAEGER_UI="$(jaeger_ui)" "$bin/jaeger" --config dev/jaeger/config.yaml
  wait_for jaeger curl -fs http://127.0.0.1:16686/api/services && wait_for jaeger listens 14317 || return 1
  start otelcol env MALOTE_JAEGER_OTLP=127.0.0.1:14317 "$bin/otelcol" --config dev/otelcol/config.yaml
  wait_for otelcol listens 4317
}

# up_prometheus TARGET…: scrapes the services and works out their alarms. Fails,
# with the reason said, where there is none: the services need none.
up_prometheus() {
  has prometheus || { say "no Prometheus is installed: metrics are scraped by nobody"; return 1; }
  local folder=$UP_DATA/prometheus targets
  stop prometheus
  listens "$UP_PROMETHEUS" && { say "port $UP_PROMETHEUS is taken: set UP_PROMETHEUS to another for Prometheus"; return 1; }
  say "starting Prometheus"
  mkdir -p "$folder"
  targets=$(printf ', %s' "$@")
  sed "s|{targets}|${targets#, }|" dev/prometheus/prometheus.yml >"$folder/prometheus.yml"
  cp deploy/prometheus/malote.rules.yml "$folder"
  start prometheus prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" \
    --storage.tsdb.retention.time=1d --web.listen-address="127.0.0.1:$UP_PROMETHEUS"
  wait_for prometheus curl -fs "http://127.0.0.1:$UP_PROMETHEUS/-/ready"
}

# build_go NAME PACKAGE: builds dev/NAME into $bin/NAME, if go.mod is newer.
build_go() {
  [ ! "$bin/$1" -nt "dev/$1/go.mod" ] || return 0
  has go || { say "no Go to build $1 with: the stack runs without traces"; return 1; }
  say "building $1 (minutes, the first time)"
  local out
  out=$(realpath "$bin")/$1
  if ! (cd "dev/$1" && go build -trimpath -ldflags='-s -w' -o "$out" "$2") >"$UP_DATA/$1-build.log" 2>&1; then
    say "$1 does not build: the stack runs without traces. Go said:"
    tail -n 5 "$UP_DATA/$1-build.log" >&2
    return 1
  fi
  touch "$bin/$1"
}

# The folder of Jaeger's web pages; empty where they cannot be fetched: Jaeger
# then shows a placeholder and its API.
jaeger_ui() {
  local manifest
  manifest=$(cargo metadata --quiet --locked --format-version 1 --manifest-path dev/jaeger-ui/Cargo.toml |
    sed -n 's/.*"manifest_path":"\([^"]*otlp-embedded-[^"]*\)\/Cargo.toml".*/\1/p') || return 0
  echo "${manifest:+$manifest/jaeger-ui/build}"
}

# free_port SERVER PORT VARIABLE
free_port() { ! listens "$2" || die "port $2 is taken, and not by us: set $3 to another for $1"; }
