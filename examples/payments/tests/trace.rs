//! One trace from the HTTP request over every hop, as a real OTLP receiver gets it.
#![allow(missing_docs)]

use malote_testkit::servers::bound;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use std::{
    collections::HashMap,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tonic::{Request, Response, Status, transport::Server};

#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans = request.into_inner().resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Receiver {
    async fn listen() -> (Self, String) {
        let receiver = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service = TraceServiceServer::new(receiver.clone());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        (receiver, address)
    }

    /// The spans of the trace to which the span of this name belongs, by name.
    fn trace_of(&self, name: &str) -> HashMap<String, Vec<Span>> {
        let spans = self.0.lock().unwrap();
        let Some(root) = spans.iter().find(|s| s.name == name) else { return HashMap::new() };
        let mut trace: HashMap<String, Vec<Span>> = HashMap::new();
        for span in spans.iter().filter(|s| s.trace_id == root.trace_id) {
            trace.entry(span.name.clone()).or_default().push(span.clone());
        }
        trace
    }
}

struct Payments(Child);
impl Drop for Payments {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_crosses_every_hop() {
    let (receiver, endpoint) = Receiver::listen().await;
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
    command
        .arg("all")
        .env("MALOTE_DATA", folder.path())
        .env("MALOTE_HTTP", format!("127.0.0.1:{port}"))
        .env("MALOTE_FRAUD_APPROVE_PERCENT", "100")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100");
    let _payments = Payments(bound(&command).stdout(Stdio::null()).spawn().unwrap());
    let base = format!("http://127.0.0.1:{port}");
    let http = reqwest::Client::new();
    eventually("ready", async || http.get(format!("{base}/ready")).send().await.is_ok_and(|r| r.status() == 200)).await;
    let answer = http
        .post(format!("{base}/payment"))
        .header("Idempotency-Key", "trace-1")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .body(r#"{"amount": 1500, "from": "alice", "to": "bob"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    let hops = [
        "POST /payment",
        "create payment.received.v1",
        "send payment.received.v1",
        "process payment.received.v1",
        "create payment.approved.v1",
        "send payment.approved.v1",
        "process payment.approved.v1",
        "create payment.settled.v1",
        "send payment.settled.v1",
        "process payment.settled.v1",
    ];
    eventually("every hop is in the trace", async || {
        let trace = receiver.trace_of("POST /payment");
        hops.iter().all(|hop| trace.contains_key(*hop)) && trace["process payment.settled.v1"].len() >= 2
    })
    .await;
    let trace = receiver.trace_of("POST /payment");
    let root = &trace["POST /payment"][0];
    assert_eq!(hex(&root.trace_id), "0af7651916cd43dd8448eb211c80319c", "it continues the caller's trace");
    assert_eq!(hex(&root.parent_span_id), "b7ad6b7169203331");
    // each hop is the child of the one before
    for pair in hops.windows(2) {
        let (parent, child) = (&trace[pair[0]], &trace[pair[1]]);
        let linked = child.iter().all(|c| parent.iter().any(|p| p.span_id == c.parent_span_id));
        assert!(linked, "{} is not under {}", pair[1], pair[0]);
    }
    let kind = |name: &str| trace[name][0].kind;
    assert_eq!(
        [kind(hops[0]), kind(hops[1]), kind(hops[2]), kind(hops[3])],
        [2, 4, 3, 5],
        "server, producer, client, consumer"
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

async fn eventually(what: &str, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is().await {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
