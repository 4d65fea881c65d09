//! The smaller relay, for a table that exists already.
//!
//! ```text
//!   claim (FOR UPDATE SKIP LOCKED) ──▶ send ──▶ reports ──▶ mark what was stored, let the rest go
//! ```
//!
//! Any number of these work side by side without coordination, each on rows that nobody else has
//! locked. It cannot promise what the log relay promises: with more than one of them the events of
//! one key may pass each other, since two hold different rows of it at once; and a table that is
//! ordered by a timestamp may show two rows of one transaction's rivals in another order than they
//! committed in. Run one, where order matters.

use malote_core::{ClaimSource, Failure, Report, Transport, retry::Backoff};
use std::{future::Future, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

const SHORTEST_POLL: Duration = Duration::from_millis(10);

/// Publishes the rows of somebody else's table and marks them.
pub struct ClaimRelay<C: ClaimSource> {
    source: C,
    transport: Arc<dyn Transport>,
    batch: u32,
    idle_poll: Duration,
    backoff: Backoff,
}

impl<C: ClaimSource> ClaimRelay<C> {
    /// Moves `source` to `transport`, up to 100 rows at a time.
    pub fn new(source: C, transport: Arc<dyn Transport>) -> Self {
        Self { source, transport, batch: 100, idle_poll: Duration::from_millis(500), backoff: Backoff::default() }
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
        while !stop.is_cancelled() {
            let (published, failure) = match self.once().await {
                Ok((published, doubt)) => (published, doubt.map(Failure::retry)),
                Err(failure) => (0, Some(failure)),
            };
            // a batch that got somewhere starts counting anew
            attempt = if published > 0 { 0 } else { attempt };
            if let Some(failure) = failure {
                attempt += 1;
                let wait = self.backoff.wait(attempt, fastrand::f64());
                tracing::warn!("the claim relay tries again in {wait:?}: {failure}");
                stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            } else if published == 0 {
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

    /// One batch: how many rows were published, and why the others were not. Those are claimed again.
    async fn once(&self) -> Result<(usize, Option<String>), Failure> {
        let (claimed, rows) = self.source.claim(self.batch).await?;
        if rows.is_empty() {
            self.source.mark(claimed, &[]).await?;
            return Ok((0, None));
        }
        let mut publisher = self.transport.publisher().await?;
        let reports = publisher.send(rows).await?.await;
        let counts = |report: &Report| *report == Report::Stored || malote_core::planted::is("claim-marks-all");
        let stored: Vec<usize> = (0..reports.len()).filter(|i| counts(&reports[*i])).collect();
        self.source.mark(claimed, &stored).await?;
        let doubt = reports.iter().find_map(|report| match report {
            Report::Stored => None,
            Report::Refused(why) | Report::Unknown(why) => Some(why),
        });
        let left = reports.len() - stored.len();
        Ok((stored.len(), doubt.map(|why| format!("{left} of {} rows were not published: {why}", reports.len()))))
    }
}
