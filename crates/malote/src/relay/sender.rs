//! Hands rows over to the transport in order, without waiting for their reports.

use crate::telemetry::{Sending, metrics::messaging};
use futures::{StreamExt, stream::FuturesUnordered};
use malote_core::{
    Admission, BoxFuture, By, Class, Dead, Envelope, Failure, History, Publisher, RawRecord, Report, Reports, Row,
    TransportError, cut_reason, wire,
};
use tokio::sync::mpsc;

/// What became of a batch of rows.
pub(super) struct Settled {
    /// Rows that are on the transport.
    pub stored: Vec<i64>,
    /// Rows that will never be, each with what is to be set aside.
    pub refused: Vec<(i64, Dead)>,
    /// Why some of the rows have to be sent again, if so.
    pub doubt: Option<String>,
}

/// Sends the batches that come from `rows`, and tells of each in `told` when all its reports are
/// there. Ends when `rows` ends and nothing is under way; or, after the first doubt, when nothing is
/// under way any more, with the reason. What it has not taken by then is read again.
pub(super) async fn send_all(
    relay: &str,
    system: &'static str,
    mut publisher: Box<dyn Publisher>,
    mut rows: mpsc::Receiver<Vec<Row>>,
    told: mpsc::UnboundedSender<Settled>,
) -> Option<String> {
    let mut under_way = FuturesUnordered::new();
    let (mut doubt, mut open) = (None, true);
    while open || !under_way.is_empty() {
        tokio::select! {
            biased;
            Some(settled) = under_way.next() => {
                let settled: Settled = settled;
                if doubt.is_none() {
                    doubt.clone_from(&settled.doubt);
                    open &= doubt.is_none();
                }
                // nobody listens any more when the lease is lost; then nothing is to be told
                let _ = told.send(settled);
            }
            batch = rows.recv(), if open => match batch {
                None => open = false,
                Some(batch) => match hand_over(relay, system, &mut *publisher, batch).await {
                    Ok(settled) => under_way.push(settled),
                    Err(error) => (doubt, open) = (Some(Failure::from(error).to_string()), false),
                },
            }
        }
    }
    doubt
}

/// Takes the place of a batch on the transport; the future resolves with its reports.
async fn hand_over(
    relay: &str,
    system: &'static str,
    publisher: &mut dyn Publisher,
    rows: Vec<Row>,
) -> Result<BoxFuture<'static, Settled>, TransportError> {
    let (mut places, mut batch, mut spans, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match row.envelope {
            Ok(mut envelope) => {
                envelope.sequence = Some(row.seq);
                spans.push(Sending::begin(&mut envelope, system));
                places.push(row.seq);
                batch.push(envelope);
            }
            Err(why) => refused.push((row.seq, unreadable(relay, row.seq, &why))),
        }
    }
    // kept only for what may be refused; a clone shares the payload's bytes
    let kept = batch.clone();
    let reports = messaging::sending(system, &kept, publisher.send(batch).await?);
    Ok(Box::pin(settle(relay.to_owned(), places, kept, spans, refused, reports)))
}

async fn settle(
    relay: String,
    places: Vec<i64>,
    kept: Vec<Envelope>,
    mut spans: Vec<Sending>,
    mut refused: Vec<(i64, Dead)>,
    reports: Reports,
) -> Settled {
    let reports = reports.await;
    let (mut stored, mut doubt) = (Vec::with_capacity(places.len()), None);
    if reports.len() != places.len() {
        doubt = Some(format!("{} reports came for {} rows", reports.len(), places.len()));
    }
    for (i, (seq, report)) in places.into_iter().zip(reports).enumerate() {
        match report {
            Report::Stored => stored.push(seq),
            Report::Refused(why) => {
                spans[i].failed(&why);
                refused.push((seq, refusal(&relay, &kept[i], &why)));
            }
            Report::Unknown(_) if malote_core::planted::is("unknown-is-stored") => stored.push(seq),
            Report::Unknown(why) => {
                spans[i].failed(&why);
                doubt = doubt.or(Some(why));
            }
        }
    }
    Settled { stored, refused, doubt }
}

fn refusal(relay: &str, envelope: &Envelope, why: &str) -> Dead {
    Dead {
        by: By::Relay(relay.to_owned()),
        what: envelope.id.to_string(),
        admission: Some(Admission::of(envelope)),
        kind: Some(envelope.kind.clone()),
        topic: envelope.topic.clone(),
        key: Some(envelope.key.clone()),
        partition: None,
        offset: None,
        class: Class::Final,
        reason: cut_reason(why),
        attempts: 1,
        history: History::default(),
        correlation_id: envelope.correlation_id.clone(),
        trace: envelope.trace.as_ref().map(|trace| trace.parent.clone()),
        record: wire::encode(envelope),
    }
}

fn unreadable(relay: &str, seq: i64, why: &str) -> Dead {
    Dead {
        by: By::Relay(relay.to_owned()),
        what: format!("outbox row {seq}"),
        admission: None,
        kind: None,
        topic: String::new(),
        key: None,
        partition: None,
        offset: Some(seq),
        class: Class::Final,
        reason: cut_reason(why),
        attempts: 1,
        history: History::default(),
        correlation_id: None,
        trace: None,
        record: RawRecord::default(),
    }
}
