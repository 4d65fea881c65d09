//! A transport that misbehaves to order, in front of a real one.
//!
//! The window between "the broker has it" and "the sender knows" cannot be hit by chance often
//! enough; here a test says, envelope by envelope, what the sender gets to know.

use malote_core::{BoxFuture, Envelope, Publisher, Report, Reports, Subscription, Transport, TransportError};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What happens to one envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Stored and reported, as if nothing were between.
    Pass,
    /// Stored, and the answer is lost: the report is unknown.
    LoseAnswer,
    /// Not stored, and the report is unknown; and so for all that this publisher is given later,
    /// as a producer without gaps would have it.
    Vanish,
    /// Refused for good, with this reason.
    Refuse(String),
    /// Not stored, and no report ever comes, neither of it nor of the others of its batch.
    Silence,
    /// Not stored again, since the broker knows that it has it, and its answer says so.
    Duplicate,
}

type Decide = dyn Fn(&Envelope) -> Fate + Send + Sync;

/// A transport whose publishers do to each envelope what a test decides.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Transport>,
    decide: Arc<Decide>,
    publishers: Arc<AtomicUsize>,
}

impl Faulty {
    /// Puts `decide` between the senders and `inner`; it is asked once for each sending.
    pub fn new(inner: Arc<dyn Transport>, decide: impl Fn(&Envelope) -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Arc::new(decide), publishers: Arc::default() }
    }

    /// How many publishers were taken so far.
    pub fn publishers(&self) -> usize {
        self.publishers.load(Ordering::SeqCst)
    }
}

impl Transport for Faulty {
    fn system(&self) -> &'static str {
        self.inner.system()
    }

    fn ensure<'a>(&'a self, topics: &'a [String]) -> BoxFuture<'a, Result<(), TransportError>> {
        self.inner.ensure(topics)
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, TransportError>> {
        self.publishers.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let inner = self.inner.publisher().await?;
            Ok(Box::new(FaultyPublisher { inner, decide: self.decide.clone(), broken: false }) as Box<dyn Publisher>)
        })
    }

    fn subscribe<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        self.inner.subscribe(group, topics)
    }
}

struct FaultyPublisher {
    inner: Box<dyn Publisher>,
    decide: Arc<Decide>,
    broken: bool,
}

impl FaultyPublisher {
    fn fate(&mut self, envelope: &Envelope) -> Fate {
        if self.broken {
            return Fate::Vanish;
        }
        let fate = (self.decide)(envelope);
        self.broken = fate == Fate::Vanish;
        fate
    }
}

impl Publisher for FaultyPublisher {
    fn send(&mut self, batch: Vec<Envelope>) -> BoxFuture<'_, Result<Reports, TransportError>> {
        Box::pin(async move {
            let fates: Vec<Fate> = batch.iter().map(|e| self.fate(e)).collect();
            let stored = |fate: &Fate| matches!(fate, Fate::Pass | Fate::LoseAnswer);
            let passed = batch.into_iter().zip(&fates).filter(|(_, fate)| stored(fate)).map(|(e, _)| e).collect();
            let reports = self.inner.send(passed).await?;
            let reports: Reports = Box::pin(async move {
                if fates.contains(&Fate::Silence) {
                    std::future::pending::<()>().await;
                }
                let mut real = reports.await.into_iter();
                let tell = |fate| match fate {
                    Fate::Pass => real.next().unwrap_or_else(|| Report::Unknown("no report came".into())),
                    Fate::LoseAnswer => {
                        real.next();
                        Report::Unknown("the answer was lost".into())
                    }
                    Fate::Vanish | Fate::Silence => Report::Unknown("it never arrived".into()),
                    Fate::Duplicate => Report::Stored,
                    Fate::Refuse(why) => Report::Refused(why),
                };
                fates.into_iter().map(tell).collect()
            });
            Ok(reports)
        })
    }
}
