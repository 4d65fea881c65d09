//! The services' metrics as the real Prometheus reads them, and as an OTLP receiver gets them.
#![allow(missing_docs)]

mod support;

use malote::telemetry::metrics::{ALL, Metric};
use malote_testkit::servers::Prometheus;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{
        ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    metrics::v1::{Metric as Exported, metric::Data, number_data_point::Value as Number},
};
use payments::app::Name;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use support::{program::Program, until};
use tonic::{Request, Response, Status, transport::Server};

/// Four services, a process each, on one folder.
async fn four(folder: &Path) -> BTreeMap<&'static str, Program> {
    let mut programs = BTreeMap::new();
    for name in Name::ALL {
        let settings = [("MALOTE_FRAUD_APPROVE_PERCENT", "100")];
        programs.insert(name.as_str(), Program::start_one(name.as_str(), folder, &settings).await);
    }
    for program in programs.values() {
        program.client.ready().await;
    }
    programs
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus")
}

/// The configuration that `make up` uses too.
fn configuration(targets: &[String]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/prometheus/prometheus.yml");
    let text = fs::read_to_string(path).expect("is there");
    text.replace("{targets}", &targets.join(", ")).replace("5s", "1s")
}

/// Prometheus' HTTP interface.
struct Asked(String);

impl Asked {
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let answer = reqwest::Client::new().get(format!("{}/api/v1/{path}", self.0)).query(query).send().await.ok()?;
        let answer: Value = answer.json().await.ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// What an expression comes to, by the value of one label.
    async fn by(&self, label: &str, expression: &str) -> BTreeMap<String, f64> {
        let data = self.get("query", &[("query", expression)]).await.unwrap_or_default();
        let found = data["result"].as_array().cloned().unwrap_or_default();
        let of = |sample: &Value| {
            let name = sample["metric"][label].as_str().unwrap_or_default().to_owned();
            Some((name, sample["value"][1].as_str()?.parse().ok()?))
        };
        found.iter().filter_map(of).collect()
    }

    /// Waits until an expression holds for exactly these values of one label.
    async fn holds_for(&self, label: &str, expression: &str, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        until(expression, || async {
            let found = self.by(label, expression).await;
            (found.into_keys().collect::<BTreeSet<_>>() == expected).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_finds_what_the_table_says_and_its_alarms_can_be_worked_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut programs = four(folder.path()).await;
    let targets: Vec<String> = programs.values().map(|program| program.client.address().to_owned()).collect();
    let Some(prometheus) = Prometheus::start_or_skip(&configuration(&targets), &deploy()) else { return };
    let asked = Asked(prometheus.url());
    let all = ["fraud", "ledger", "notification", "payment"];
    let payments = 20;
    let mut ids = Vec::new();
    for _ in 0..payments {
        ids.push(programs["payment"].client.accepted(1500, "alice", "bob").await);
    }
    for id in &ids {
        programs["payment"].client.ended(id).await;
    }

    let relayed = ["fraud", "ledger", "payment"];
    asked.holds_for("service", "max by (service) (malote_relay_leader) == 1", &relayed).await;
    asked.holds_for("service", "sum by (service) (malote_published_total) >= 20", &relayed).await;
    asked.holds_for("service", "malote_publish_seconds_count > 0", &relayed).await;
    asked.holds_for("consumer", "malote_consumed_total >= 20", &all).await;
    asked.holds_for("service", "malote_outbox_pending == 0", &all).await;
    asked.holds_for("service", "malote_outbox_oldest_age_seconds == 0", &all).await;
    asked.holds_for("service", "malote_sqlite_wal_bytes >= 0", &all).await;
    asked.holds_for("service", "malote_janitor_rounds_total > 0", &all).await;
    asked.holds_for("by", r#"malote_dead_letters{by="consumer ledger"} == 0"#, &["consumer ledger"]).await;
    let handled =
        r#"messaging_process_duration_seconds_count{error_type="", messaging_operation_name="process"} >= 20"#;
    asked.holds_for("messaging_consumer_group_name", handled, &all).await;
    let sent = r#"messaging_client_sent_messages_total{messaging_destination_name="payment.received.v1"} >= 20"#;
    asked.holds_for("messaging_destination_name", sent, &["payment.received.v1"]).await;
    let delivered = r#"messaging_client_consumed_messages_total{messaging_consumer_group_name="ledger"} >= 20"#;
    asked.holds_for("messaging_destination_name", delivered, &["payment.approved.v1"]).await;
    let calls = "sum by (messaging_operation_name) (messaging_client_operation_duration_seconds_count) > 0";
    asked.holds_for("messaging_operation_name", calls, &["commit", "send"]).await;
    asked.holds_for("version", "sum by (version) (malote_build_info) == 4", &[env!("CARGO_PKG_VERSION")]).await;

    nothing_else_is_told(&programs, &ids).await;
    alarms(&asked, &mut programs).await;
}

/// Names and labels of all series are those of the table, and none holds an id.
async fn nothing_else_is_told(programs: &BTreeMap<&str, Program>, ids: &[String]) {
    let known: BTreeMap<String, &Metric> = ALL.iter().map(|metric| (metric.prometheus(), metric)).collect();
    for program in programs.values() {
        let answer = program.client.get("/metrics").await.expect("an answer");
        assert_eq!(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
        for id in ids {
            assert!(!answer.text.contains(id), "a payment's id is in {}", answer.text);
        }
        for line in answer.text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, rest) = line.split_once(['{', ' ']).expect("a name and a value");
            let ends = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let metric = known.get(name).or_else(|| known.get(ends?)).unwrap_or_else(|| panic!("{name} is unknown"));
            let labels = rest.rsplit_once('}').map_or("", |(labels, _)| labels);
            for label in labels.split("\",").filter_map(|pair| Some(pair.split_once('=')?.0)) {
                let fits = label == "le" || metric.prometheus_labels().iter().any(|known| known == label);
                assert!(fits, "{name} has a label {label}: {line}");
            }
        }
    }
}

/// The real rules are loaded and can be evaluated; the one that is expected to notice a dead process does.
async fn alarms(asked: &Asked, programs: &mut BTreeMap<&'static str, Program>) {
    let rules = until("every rule was evaluated", || async {
        let data = asked.get("rules", &[]).await?;
        let groups = data["groups"].as_array()?.clone();
        let rules: Vec<Value> = groups.iter().flat_map(|group| group["rules"].as_array().cloned()).flatten().collect();
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    })
    .await;
    assert!(rules.len() >= 15, "{rules:?}");
    programs.remove("ledger").expect("is there").kill().await;
    until("its death is noticed", || async {
        let data = asked.get("alerts", &[]).await?;
        let alerts = data["alerts"].as_array()?;
        alerts.iter().any(|alert| alert["labels"]["alertname"] == "MaloteTargetDown").then_some(())
    })
    .await;
}

/// Receives metrics by OTLP.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<(String, Exported)>>>);

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        for of in request.into_inner().resource_metrics {
            let resource = format!("{:?}", of.resource);
            let metrics = of.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
            let mut received = self.0.lock().expect("not poisoned");
            received.extend(metrics.map(|metric| (resource.clone(), metric)));
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl Receiver {
    async fn listen() -> (Self, String) {
        let receiver = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let service = MetricsServiceServer::new(receiver.clone());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        (receiver, address)
    }

    /// The latest of this name.
    fn latest(&self, name: &str) -> Option<Exported> {
        let received = self.0.lock().expect("not poisoned");
        received.iter().rev().find(|(_, metric)| metric.name == name).map(|(_, metric)| metric.clone())
    }
}

/// The sum of a counter's series.
fn total(metric: &Exported) -> i64 {
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?} is no counter") };
    assert!(sum.is_monotonic, "{metric:?}");
    let values = sum.data_points.iter().map(|point| match point.value {
        Some(Number::AsInt(value)) => value,
        _ => panic!("{metric:?} counts no whole things"),
    });
    values.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_metrics_go_out_by_otlp() {
    let (receiver, endpoint) = Receiver::listen().await;
    let folder = tempfile::tempdir().expect("a folder");
    let settings = [
        ("MALOTE_FRAUD_APPROVE_PERCENT", "100"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
    ];
    let program = Program::start(folder.path(), &settings).await;
    let id = program.client.accepted(1500, "alice", "bob").await;
    program.client.ended(&id).await;
    // received, approved, settled twice
    until("what was handled is counted", || async {
        (total(&receiver.latest("malote_consumed_total")?) >= 4).then_some(())
    })
    .await;
    let duration = receiver.latest("messaging.process.duration").expect("was exported");
    assert_eq!(duration.unit, "s");
    let Some(Data::Histogram(histogram)) = &duration.data else { panic!("{duration:?}") };
    assert_eq!(histogram.data_points[0].explicit_bounds.len(), 14, "{duration:?}");
    let lag = receiver.latest("malote_outbox_oldest_age_seconds").expect("was exported");
    assert!(matches!(&lag.data, Some(Data::Gauge(gauge)) if gauge.data_points.len() == 4), "{lag:?}");
    assert!(lag.description.starts_with("Age of the oldest row"), "{lag:?}");
    for name in ["messaging.client.sent.messages", "messaging.client.consumed.messages", "malote_build_info"] {
        assert!(receiver.latest(name).is_some(), "{name} was not exported");
    }
    let received = receiver.0.lock().expect("not poisoned").clone();
    assert!(received.iter().all(|(of, _)| of.contains("payments")), "the resource names the service");
    assert!(received.iter().all(|(_, metric)| !format!("{metric:?}").contains(&id)), "a payment's id was exported");
    // and they are rendered all the same
    let text = program.client.get("/metrics").await.expect("an answer").text;
    assert!(text.contains("malote_consumed_total{consumer=\"ledger\"} 1\n"), "{text}");
}
