//! Hands rows over to the transport in order, without waiting for their reports.

use super::{
    counts::Counts,
    lanes::{Teller, Way},
};
use crate::telemetry::{Sending, metrics::messaging};
use futures::{StreamExt, stream::FuturesUnordered};
use malote_core::{
    Admission, BoxFuture, By, Class, Dead, Envelope, Failure, History, Publisher, RawRecord, Report, Reports, Row,
    TransportError, cut_reason, wire,
};
use std::{pin::pin, sync::Arc};
use tokio::{sync::mpsc, time::Instant};

/// What became of a batch of rows.
pub(super) struct Settled {
    /// Rows that are on the transport.
    pub stored: Vec<i64>,
    /// Rows that will never be, each with what is to be set aside.
    pub refused: Vec<(i64, Dead)>,
    /// Why some of the rows have to be sent again, if so.
    pub doubt: Option<String>,
}

/// What a lane tells.
pub(super) struct Told {
    pub lane: usize,
    pub what: What,
}

pub(super) enum What {
    /// All reports of a batch are there.
    Settled(Settled),
    /// It has ended, in doubt if there is a reason: rows that were not settled will have no report.
    Ended(Option<String>),
}

/// Sends the batches that come from `rows` by a publisher of its own, and tells of each when all its
/// reports are there. Ends when `rows` ends and nothing is under way; or, after the first doubt, when
/// nothing is under way any more, with the reason. What it has not taken by then is read again.
pub(super) async fn send_all(
    lane: usize,
    way: Arc<Way>,
    rows: mpsc::UnboundedReceiver<Vec<Row>>,
    told: mpsc::UnboundedSender<Told>,
) {
    let mut teller = Teller::new(lane, told);
    let doubt = send_until_doubt(&way, rows, &mut teller).await;
    teller.tell(What::Ended(doubt));
}

async fn send_until_doubt(
    way: &Way,
    mut rows: mpsc::UnboundedReceiver<Vec<Row>>,
    teller: &mut Teller,
) -> Option<String> {
    let silent = || format!("no answer from the transport for {:?}", way.deadline);
    let mut publisher = match tokio::time::timeout(way.deadline, way.transport.publisher()).await {
        Ok(Ok(publisher)) => publisher,
        Ok(Err(error)) => return Some(Failure::from(error).to_string()),
        Err(_) => return Some(silent()),
    };
    let (mut doubt, mut open, mut under_way) = (None, true, FuturesUnordered::new());
    let mut answered = Instant::now();
    let endless = malote_core::planted::is("no-deadline");
    while open || !under_way.is_empty() {
        let batch = tokio::select! {
            biased;
            Some(settled) = under_way.next() => {
                answered = Instant::now();
                open &= tell(teller, settled, &mut doubt);
                continue;
            }
            () = tokio::time::sleep_until(answered + way.deadline), if !under_way.is_empty() && !endless => {
                return doubt.or_else(|| Some(silent()));
            }
            batch = rows.recv(), if open => batch,
        };
        let Some(batch) = batch else {
            open = false;
            continue;
        };
        if under_way.is_empty() {
            answered = Instant::now();
        }
        let mut handing = pin!(hand_over(way, &mut *publisher, batch));
        // the transport may take the next batch only when it has room, which reports make
        let handed = loop {
            tokio::select! {
                handed = &mut handing => break handed,
                Some(settled) = under_way.next() => {
                    answered = Instant::now();
                    open &= tell(teller, settled, &mut doubt);
                }
                () = tokio::time::sleep_until(answered + way.deadline) => return doubt.or_else(|| Some(silent())),
            }
        };
        match handed {
            Ok(settled) => under_way.push(settled),
            Err(error) => {
                open = false;
                doubt.get_or_insert_with(|| Failure::from(error).to_string());
            }
        }
    }
    doubt
}

/// Tells of a batch; false when it leaves a doubt.
fn tell(teller: &mut Teller, settled: Settled, doubt: &mut Option<String>) -> bool {
    let clear = settled.doubt.is_none();
    if doubt.is_none() {
        doubt.clone_from(&settled.doubt);
    }
    teller.tell(What::Settled(settled));
    clear
}

/// Takes the place of a batch on the transport; the future resolves with its reports.
async fn hand_over(
    way: &Way,
    publisher: &mut dyn Publisher,
    rows: Vec<Row>,
) -> Result<BoxFuture<'static, Settled>, TransportError> {
    let system = way.transport.system();
    let (mut places, mut batch, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        // those that cannot be read are not handed to a lane
        if let Ok(mut envelope) = row.envelope {
            envelope.sequence = Some(row.seq);
            spans.push(Sending::begin(&mut envelope, system));
            places.push(row.seq);
            batch.push(envelope);
        }
    }
    // kept only for what may be refused; a clone shares the payload's bytes
    let kept = batch.clone();
    let reports = messaging::sending(system, &kept, publisher.send(batch).await?);
    Ok(Box::pin(settle(way.service.clone(), way.counts.clone(), places, kept, spans, reports)))
}

async fn settle(
    relay: Arc<str>,
    counts: Counts,
    places: Vec<i64>,
    kept: Vec<Envelope>,
    mut spans: Vec<Sending>,
    reports: Reports,
) -> Settled {
    let reports = reports.await;
    counts.published(&kept, &reports);
    let (mut stored, mut refused, mut doubt) = (Vec::with_capacity(places.len()), Vec::new(), None);
    if reports.len() != places.len() {
        doubt = Some(format!("{} reports came for {} rows", reports.len(), places.len()));
    }
    for (i, (seq, report)) in places.into_iter().zip(reports).enumerate() {
        match report {
            Report::Stored => stored.push(seq),
            Report::Refused(why) if malote_core::planted::is("refused-is-unknown") => doubt = doubt.or(Some(why)),
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

/// What is set aside of a row that cannot be read.
pub(super) fn unreadable(relay: &str, seq: i64, why: &str) -> Dead {
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
