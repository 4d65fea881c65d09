//! The smaller relay, for a table that exists already.
//!
//! ```text
//!   claim (FOR UPDATE SKIP LOCKED) ──▶ send ──▶ reports ──▶ mark what was stored, let the rest go
//!     ▲                                            │
//!     └── not those that wait ◀── refused rows ◀───┘
//! ```
//!
//! Any number of these work side by side without coordination, each on rows that nobody else has
//! locked. It cannot promise what the log relay promises: with more than one of them the events of
//! one key may pass each other, since two hold different rows of it at once; and a table that is
//! ordered by a timestamp may show two rows of one transaction's rivals in another order than they
//! committed in. Run one, where order matters.

use super::refused::{Next, Refused};
use malote_core::{ClaimSource, Failure, Report, Transport, retry::Backoff};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SHORTEST_POLL: Duration = Duration::from_millis(10);

/// Publishes the rows of somebody else's table and marks them.
pub struct ClaimRelay<C: ClaimSource> {
    source: C,
    transport: Arc<dyn Transport>,
    batch: u32,
    idle_poll: Duration,
    backoff: Backoff,
    refused: (Backoff, u32),
}

impl<C: ClaimSource> ClaimRelay<C> {
    /// Moves `source` to `transport`, up to 100 rows at a time.
    pub fn new(source: C, transport: Arc<dyn Transport>) -> Self {
        Self {
            source,
            transport,
            batch: 100,
            idle_poll: Duration::from_millis(500),
            backoff: Backoff::default(),
            refused: (Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) }, 10),
        }
    }

    /// Most rows in one claim.
    pub fn batch(mut self, most: u32) -> Self {
        self.batch = most.max(1);
        self
    }

    /// Longest pause between two looks at an idle table.
    pub fn idle_poll(mut self, longest: Duration) -> Self {
        self.idle_poll = longest;
        self
    }

    /// How long a row that the transport refuses waits before it is tried again, and how often it is
    /// tried; 1 s to 5 min and 10 times unless set. The last refusal is logged as an error; after it the
    /// row is left alone, unpublished, until the relay is started again.
    pub fn refused(mut self, wait: Backoff, attempts: u32) -> Self {
        self.refused = (wait, attempts.max(1));
        self
    }

    /// Runs until `stop` resolves; a batch that is under way is finished first.
    pub async fn run_until(self, stop: impl Future) {
        let token = CancellationToken::new();
        let run = self.run(&token);
        tokio::pin!(run);
        tokio::select! {
            () = &mut run => {}
            _ = stop => { token.cancel(); run.await; }
        }
    }

    async fn run(&self, stop: &CancellationToken) {
        let (mut attempt, mut poll) = (0, SHORTEST_POLL);
        let mut refused = Refused::new(self.refused.0, self.refused.1);
        while !stop.is_cancelled() {
            let (moved, failure) = match self.once(&mut refused).await {
                Ok((moved, doubt)) => (moved, doubt.map(Failure::retry)),
                Err(failure) => (0, Some(failure)),
            };
            // a batch that got somewhere starts counting anew
            attempt = if moved > 0 { 0 } else { attempt };
            if let Some(failure) = failure {
                attempt += 1;
                let wait = self.backoff.wait(attempt, fastrand::f64());
                tracing::warn!("the claim relay tries again in {wait:?}: {failure}");
                stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            } else if moved == 0 {
                attempt = 0;
                poll = (poll * 2).min(self.idle_poll);
                let idle = async {
                    tokio::select! { () = self.source.woken() => {}, () = tokio::time::sleep(poll) => {} }
                };
                stop.run_until_cancelled(idle).await;
            } else {
                poll = SHORTEST_POLL;
            }
        }
    }

    /// One batch: how many rows are out of the way (published, or refused, so that they wait), and why
    /// the others are to be claimed again at once.
    async fn once(&self, refused: &mut Refused) -> Result<(usize, Option<String>), Failure> {
        let (claimed, rows) = self.source.claim(self.batch, &refused.waiting(Instant::now())).await?;
        if rows.is_empty() {
            self.source.mark(claimed, &[]).await?;
            return Ok((0, None));
        }
        let (ids, envelopes): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let mut publisher = self.transport.publisher().await?;
        let reports = publisher.send(envelopes).await?.await;
        let counts = |report: &Report| *report == Report::Stored || malote_core::planted::is("claim-marks-all");
        let stored: Vec<usize> = (0..reports.len()).filter(|i| counts(&reports[*i])).collect();
        self.source.mark(claimed, &stored).await?;
        let (mut moved, mut doubt, mut doubts) = (stored.len(), None, 0);
        for (id, report) in ids.iter().zip(&reports) {
            match report {
                Report::Stored => refused.forget(id),
                Report::Refused(why) => {
                    moved += 1;
                    tell(id, why, &refused.note(id, Instant::now(), fastrand::f64()));
                }
                Report::Unknown(why) => (doubt, doubts) = (doubt.or(Some(why)), doubts + 1),
            }
        }
        Ok((moved, doubt.map(|why| format!("{doubts} of {} rows have no report: {why}", reports.len()))))
    }
}

/// Tells people of a refused row.
fn tell(id: &str, why: &str, next: &Next) {
    match next {
        Next::After(wait) => tracing::warn!(row = id, "refused, and claimed again in {wait:?}: {why}"),
        Next::GivenUp => tracing::error!(
            row = id,
            "refused as often as it may be; it is left alone, unpublished, until the relay is started again: {why}"
        ),
    }
}
